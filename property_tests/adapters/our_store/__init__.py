"""The stores' model on real servers: adapters that take the model's steps as bytes on connections."""
