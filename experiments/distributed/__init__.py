"""On several processes: figures of ``baryflow.distributed``."""
