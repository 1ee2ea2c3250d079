"""The REST interface: routes, schemas, authentication, errors as problem+json."""
