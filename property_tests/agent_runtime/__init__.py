"""Jobs of real agents on this machine: started, watched, hurt, and ended whatever happens."""
