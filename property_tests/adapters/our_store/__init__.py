"""The stores' models on real servers: adapters that take a model's steps as bytes on connections."""
