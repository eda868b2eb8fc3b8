"""Model providers: requests, streams, retries, prices, and a scripted model."""
