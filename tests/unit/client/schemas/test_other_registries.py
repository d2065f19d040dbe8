"""Requests to AWS are signed as the examples of its documents are."""

from __future__ import annotations

from core.client.schemas.other_registries import Credentials, authorization
from tests.support.for_each import for_each


@for_each(
    "method, signature",
    [
        ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ],
)
def test_the_signature_of_aws_test_suite(method: str, signature: str) -> None:
    """get-vanilla and post-vanilla of AWS's test suite of Signature Version 4."""
    credentials = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
    assert authorization(method, headers, b"", credentials, "us-east-1", "service") == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={signature}"
    )
