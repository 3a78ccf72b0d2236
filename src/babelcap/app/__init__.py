"""Captioners over HTTP: `serve/` is the API, `tabs/` are the pages of the web app; both ask one `Engine`."""
