"""The test loop: three tiers, what each may use, how workers share them, and what a person sees."""
