"""The crash lab: real agents killed in each crash window, and a count of what it did to the provider."""
