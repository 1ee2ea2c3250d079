"""The client of the REST interface, under the command line and for programs.

    from leasehold import Client

    client = Client("http://scheduler:8642", token="lh_...")
    job_id = client.submit(name="train", command=["python", "train.py"], total_steps=1000)
    job = client.wait(job_id)

``AsyncClient`` has the same methods as coroutines. Answers are dictionaries whose keys and values
are typed in ``leasehold.client.forms``, which is written from the OpenAPI document.

Calls are tried again while the scheduler restarts or is busy, and a submission carries an id by
which a repeated one is recognised, so that none is lost and none is doubled.
"""

from __future__ import annotations

from leasehold.client.asynchronous import ENDED, AsyncClient
from leasehold.client.blocking import Client
from leasehold.client.errors import ClientError, UnreachableError

__all__ = ["ENDED", "AsyncClient", "Client", "ClientError", "UnreachableError"]
