"""The whole service in one process under virtual time, decided by a seed.

``world.World`` puts it together, ``oracle`` says what must hold, ``scenario`` draws what happens.
"""
