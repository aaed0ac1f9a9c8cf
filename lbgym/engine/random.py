"""Random numbers: xoshiro256++ streams that live in the state (Blackman and Vigna, 2021)."""

import math

import numpy as np

from .access import inner, stream

_17, _23, _45, _11, _19, _41 = (np.uint64(k) for k in (17, 23, 45, 11, 19, 41))
_UNIT = 2.0**-53


@inner
def next_word(w, s):
    """The next 64 bits of stream s."""
    x = stream(w, s)
    a, b, c, d = x.a, x.b, x.c, x.d
    total = a + d
    result = ((total << _23) | (total >> _41)) + a
    t = b << _17
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= t
    d = (d << _45) | (d >> _19)
    x.a, x.b, x.c, x.d = a, b, c, d
    return result


@inner
def uniform(w, s):
    """Uniform on [0, 1), 53 bits."""
    return float(next_word(w, s) >> _11) * _UNIT


@inner
def exponential(w, s):
    """Exponential with mean 1."""
    return -math.log(1.0 - uniform(w, s))


@inner
def below(w, s, n):
    """Uniform on 0 .. n - 1."""
    return int(uniform(w, s) * n)
