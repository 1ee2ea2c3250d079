"""One file per revision, in the order of ``scheduler.store.schema.REVISIONS``."""
