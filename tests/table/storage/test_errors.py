"""What a store says is told with its own code, and without what is a key."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from tagstream.table.errors import StoreError, TagstreamError
from tagstream.table.storage.object_client import may_pass, translated_errors

SAID = (
    "Generic S3 error: Error performing PUT https://s/b/x?X-Amz-Signature=hidden in 5ms - Server returned non-2xx status "
    'code: {code}: <?xml version="1.0"?>\n<Error>\n  <Code>{name}</Code></Error>'
)


def test_an_answer_is_told_in_one_line() -> None:
    with pytest.raises(StoreError) as e, translated_errors("s3a://b/x"):
        raise GenericError(SAID.format(code="400 Bad Request", name="OutOfRangeInput"))
    text = str(e.value)
    assert text.startswith("s3a://b/x: ")
    assert "(OutOfRangeInput)" in text
    assert "hidden" not in text
    assert "\n" not in text
    assert isinstance(e.value, TagstreamError)
    assert isinstance(e.value, OSError)


def test_credentials_that_have_run_out_are_told_so() -> None:
    with pytest.raises(StoreError, match="have expired"), translated_errors("s3a://b/x"):
        raise PermissionDeniedError(SAID.format(code="403 Forbidden", name="ExpiredToken"))


@pytest.mark.parametrize(
    ("code", "again"),
    [("503 Slow Down", True), ("500", True), ("429", True), ("409", True), ("400", False), ("403", False)],
)
def test_what_may_pass_is_tried_again(code: str, again: bool) -> None:
    assert may_pass(GenericError(SAID.format(code=code, name="X"))) is again
