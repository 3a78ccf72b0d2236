"""The HTTP API: `api` has the routes, `schemas` what goes in and out, `chat` the dialect of OpenAI's clients."""
