"""The outage drill: many unknown outcomes, a provider that was away, and what it sees when it is back."""
