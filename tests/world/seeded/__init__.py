"""The whole service in one process under virtual time, decided by a seed.

``world.World`` puts it together, ``oracle`` has the checks, ``scenario`` draws the events.
"""
