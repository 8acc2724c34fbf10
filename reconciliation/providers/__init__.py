"""Outside systems: how an effect is sent, looked up and matched. Input and output only, no models."""
