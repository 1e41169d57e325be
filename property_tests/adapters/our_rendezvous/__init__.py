"""Our rendezvous compared with the model: its operators, its calls other than heartbeats, and jobs at one endpoint."""
