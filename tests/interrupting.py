"""For tests that press Ctrl-C on a program they have started."""

import signal


def heed_interrupts():
    """To be run in the child (`preexec_fn`): a job in the background inherits SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
