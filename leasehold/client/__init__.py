"""The client of the REST interface, under the command line and for programs.

    from leasehold import Client

    client = Client("http://scheduler:8642", token="lh_...")
    job_id = client.submit(name="train", command=["python", "train.py"], total_steps=1000)
    job = client.wait(job_id)

``AsyncClient`` has the same methods as coroutines. Answers are dictionaries;
``leasehold.client.forms``, generated from the OpenAPI document, has the types of keys and values.

The client retries calls while the scheduler restarts or is busy. A submission carries an id, by
which the scheduler recognises a repeated one, so that no job is lost or submitted twice.
"""

from __future__ import annotations

from leasehold.client.asynchronous import ENDED, AsyncClient
from leasehold.client.blocking import Client
from leasehold.client.errors import ClientError, UnreachableError

__all__ = ["ENDED", "AsyncClient", "Client", "ClientError", "UnreachableError"]
