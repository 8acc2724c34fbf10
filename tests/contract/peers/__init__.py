"""Providers' stand-ins that others wrote: installed by the set-up, started here, on the loopback address."""
