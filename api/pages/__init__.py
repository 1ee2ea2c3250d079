"""The page for the browser: views, templates and static files.

Pages are made on the server and hold no rule of their own: they call what the routes of the REST
interface call. The URL of a view is its whole state. Without JavaScript they can be read and used;
with it they follow what happens.
"""
