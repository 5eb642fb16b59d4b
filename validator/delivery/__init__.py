"""The right image for a host: which ones fit it, whether one may be selected, and how it is run there."""
