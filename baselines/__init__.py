"""Studies that compare lbgym with what is known: one module each, run by ``python -m``.

| module | what it shows |
|---|---|
| `baselines.agreement` | every exact value of `baselines.reference` against `simulate` |
| `baselines.pull` | PULL as the number of servers grows, and where it is unstable |
| `baselines.car_sharing` | the best fleet, and where users should take their cars |
| `baselines.flow_network` | unstable with every link below capacity; access rates; fair drop |
| `baselines.coverage` | how often the 95 % intervals contain the truth |

Results, with the command and the seeds that made them, are in ``baselines/results``.
"""
