"""One file per revision, in the order of ``scheduler.store.sql.schema.REVISIONS``."""
