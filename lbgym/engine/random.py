"""Random numbers: xoshiro256++ streams that live in the state (Blackman and Vigna, 2021).

Exponential variates come from a ziggurat of 256 layers of equal area (Marsaglia and Tsang, 2000):
99 in 100 cost one word, one product and one comparison, a third of a logarithm.
"""

import math

import numpy as np

from .access import inner, layer, stream
from .layout import RECORDS, SEEDS

# The rightmost layer edge and the layers' common area, which make the top edge 0.
_EDGE, _AREA = 7.69711747013104972, 0.0039496598225815571993


def _layers() -> np.ndarray:
    """Right edge of each layer, base first, and the density there; shape (257,)."""
    x = [_AREA * math.exp(_EDGE), _EDGE]
    while len(x) < 256:
        x.append(-math.log(_AREA / x[-1] + math.exp(-x[-1])))
    layers = np.zeros(257, RECORDS["layers"])
    layers["edge"] = [*x, 0.0]
    layers["density"] = np.exp(-layers["edge"])
    return layers


LAYERS = _layers()  # one table for all states

_17, _23, _45, _11, _19, _41 = (np.uint64(k) for k in (17, 23, 45, 11, 19, 41))
_LAYER = np.uint64(255)
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
def renew(w):
    """Seed all other streams from the stream of seeds."""
    for s in range(SEEDS):
        x = stream(w, s)
        x.a, x.b = next_word(w, SEEDS), next_word(w, SEEDS)
        x.c, x.d = next_word(w, SEEDS), next_word(w, SEEDS)


@inner
def uniform(w, s):
    """Uniform on [0, 1), 53 bits."""
    return np.int64(next_word(w, s) >> _11) * _UNIT


@inner
def exponential(w, s):
    """Exponential with mean 1."""
    beyond = 0.0
    while True:
        word = next_word(w, s)
        k = np.int64(word & _LAYER)
        this, above = layer(w, k), layer(w, k + 1)
        x = np.int64(word >> _11) * _UNIT * this.edge
        if x < above.edge:
            return beyond + x
        if k == 0:  # the tail is again exponential
            beyond += _EDGE
        elif this.density + uniform(w, s) * (above.density - this.density) < math.exp(-x):
            return beyond + x


@inner
def below(w, s, n):
    """Uniform on 0 .. n - 1."""
    return int(uniform(w, s) * n)
