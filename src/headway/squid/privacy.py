"""What of a user's request may be kept: the address of a public page, and nothing about the user.

Passwords in a URL, and parameters that carry a session or a person, must not reach the disk. With queries
off, as they are by default, no URL with a query does.
"""

from __future__ import annotations

import re

import msgspec

LONGEST_URL = 2000
PRIVATE_PARAMETERS = (
    "access_token|api_?key|apikey|assertion|auth|authenticity_token|code|credential|csrf[a-z_-]*|e-?mail|hash|"
    "id_token|jsessionid|jwt|key|login|nonce|otp|pass|passwd|password|passphrase|phone|phpsessid|pin|pwd|"
    "refresh_token|saml[a-z]*|secret|session|session_?id|sess|sid|sig|signature|sso|ssn|state|ticket|token|"
    "user|user_?id|user_?name|x-amz-[a-z-]+|.*[_-]?(?:token|secret|password|session|signature)"
)
"""Names of parameters for which a URL is left alone, as a pattern for the whole name, whatever its case."""
_CREDENTIALS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*@")
_IN_PATH = re.compile(r";\s*(?:jsessionid|phpsessid|sid|session(?:id)?)\s*=", re.IGNORECASE)
_NAME = re.compile(r"[?&;]([^=&;#]*)")


class PrivacyRules(msgspec.Struct, frozen=True):
    queries: bool = False
    private_parameters: str = PRIVATE_PARAMETERS
    longest_url: int = LONGEST_URL

    def refusal(self, url: str) -> str | None:
        """Why a URL is not taken, or None."""
        if len(url) > self.longest_url:
            return "url-too-long"
        if _CREDENTIALS.match(url):
            return "credentials"
        if _IN_PATH.search(url):
            return "session-in-path"
        _, mark, query = url.partition("?")
        if mark and not self.queries:
            return "query"
        if mark and any(self._is_private(name) for name in _NAME.findall("?" + query)):
            return "private-parameter"
        return None

    def _is_private(self, name: str) -> bool:
        return re.fullmatch(self.private_parameters, name, re.IGNORECASE) is not None
