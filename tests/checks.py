"""What many tests say: this command succeeds, that call is refused with this message."""

import pytest

from consilience.core.errors import ConsilienceError


def refused(message, call, *arguments, **options):
    """The call ends with one of our errors whose text has a match of that regular expression.

    An empty one is any: the text, which is returned, is checked by the test.
    """
    __tracebackhide__ = True
    with pytest.raises(ConsilienceError, match=message or None) as caught:
        call(*arguments, **options)
    return str(caught.value)


def output(command, *arguments):
    """Standard output of a command that succeeds; ``command``: the fixture ``consilience``."""
    __tracebackhide__ = True
    status, out, err = command(*arguments)
    assert status == 0, err
    return out


def refusal(command, *arguments):
    """Standard error of a command that is refused."""
    __tracebackhide__ = True
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    return err
