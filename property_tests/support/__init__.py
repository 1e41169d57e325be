"""What several tests share: mutants, sample systems, real processes, pinned counts. Not part of the wheel."""
