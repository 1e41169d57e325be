"""The rendezvous barrier of NVIDIA's resiliency extension (NVRx): its rounds, and the known defects."""
