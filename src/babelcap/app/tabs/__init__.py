"""The pages of the app, one file a tab: each lays out its controls and answers them."""
