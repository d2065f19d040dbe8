"""Trust and identity of a client or a listener, for OpenSSL: reads PEM, PKCS12 and JKS files into a context.

The first bytes tell the type of a file. PKCS12 needs the extra `security` (cryptography); PEM and JKS do not. Keys that
are not PEM files go to OpenSSL through a file in memory, or one that only we may read, which is gone at once.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import ssl
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from core.common.errors import UsageError
from core.common.filesystem import access_error
from core.security.certificate_fields import CertificateFields, find_numbers, parse_certificate
from core.security.client_security import KeyStore, StoreType, Tls, TrustStore
from core.security.jks import JCEKS_MAGIC, MAGIC, JavaKeyStore, KeyStoreError, parse_jks
from core.security.sasl.scram import MOST_ITERATIONS
from core.security.secret import Secret
from core.security.server_security import ClientAuth, ServerTls

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_MOST_BYTES = 16 << 20
_PARTIAL_CHAIN = 0x80000
"""X509_V_FLAG_PARTIAL_CHAIN: every certificate of the trust store is trusted, as in Java, even if it is not a root."""


def make_context(tls: Tls) -> ssl.SSLContext:
    """Raises UsageError for a file that can't be read or parsed, or a wrong password, without showing a secret."""
    context = _new_context(ssl.PROTOCOL_TLS_CLIENT, tls)
    context.check_hostname = tls.checks_host_names
    context.verify_mode = ssl.CERT_REQUIRED if tls.checks_certificates else ssl.CERT_NONE
    _set_ciphers(context, tls.ciphers)
    load_trust(context, tls.trust)
    if tls.key_store is not None:
        _load_key(context, tls.key_store)
    return context


def _new_context(protocol: int, tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    versions = sorted(_VERSIONS[name] for name in tls.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.verify_flags |= _PARTIAL_CHAIN
    return context


_CLIENT_AUTH = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class ServerContext(NamedTuple):
    """A listener's context, and its certificates as it shows them: its own first."""

    context: ssl.SSLContext
    chain: tuple[CertificateFields, ...]


def load_server_context(server: ServerTls) -> ServerContext:
    """Loads a listener's stores. Raises UsageError, which names the setting and the file, and shows no secret.

    No ticket resumes a session: a handshake costs little, and each client's certificate is looked at again. TLS 1.2 can
    also resume one by its id, within a context alone; OpenSSL then takes the certificate of before without a look at
    its dates (see `TlsTransport.is_resumed`).
    """
    tls = server.tls
    context = _new_context(ssl.PROTOCOL_TLS_SERVER, tls)
    context.verify_mode = _CLIENT_AUTH[server.client_auth]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    if tls.ciphers:
        _restrict_suites(context, tls.ciphers)
    if tls.key_store is None:
        raise UsageError("a listener with TLS needs a certificate and its key", hint="ssl.keystore.location=FILE")
    if tls.trust is not None:
        with _about("ssl.truststore.location" if tls.trust.location else "ssl.truststore.certificates"):
            load_trust(context, tls.trust)
    elif server.client_auth is not ClientAuth.NONE:
        raise UsageError(
            f"ssl.client.auth={server.client_auth} needs the CAs of clients: there is no trust store",
            hint="ssl.truststore.location=FILE; the system's, whose CAs sign for anybody, is a file, too",
        )
    with _about("ssl.keystore.location" if tls.key_store.location else "ssl.keystore.certificate.chain"):
        pem = _load_key(context, tls.key_store)
        own = (_der(block) for kind, block in _pem_blocks(pem) if kind == "CERTIFICATE")
        return ServerContext(context, tuple(map(_fields, own)))


@contextlib.contextmanager
def _about(setting: str) -> Iterator[None]:
    """Errors in the block name the setting."""
    try:
        yield
    except UsageError as error:
        if error.message.startswith(setting):
            raise
        raise UsageError(f"{setting}: {error.message}", hint=error.hint) from None


def _der(block: str, where: str | Path = "the store") -> bytes:
    """Raises UsageError for a block of PEM that is no base64; OpenSSL takes some of these."""
    try:
        return ssl.PEM_cert_to_DER_cert(block)
    except ValueError:
        raise UsageError(f"{where} holds a certificate that does not decode: it is no base64") from None


def _fields(certificate: bytes) -> CertificateFields:
    try:
        return parse_certificate(certificate)
    except ValueError as error:
        raise UsageError(f"a certificate does not decode: {error}") from None


def find_files(tls: Tls) -> dict[str, os.stat_result | None]:
    """Returns the files and folders of which a context is made, and what the system says of each, after links; None for
    one that is not there.
    """
    trust, keys = tls.trust, tls.key_store
    names = [trust.location] if trust else []
    names += [keys.location, keys.certificate_location, keys.key_location] if keys else []
    return {name: _stat(name) for name in names if name}


def file_states(tls: Tls) -> tuple[object, ...]:
    """Returns what changes when one of the files is replaced, or written in place."""
    return tuple(
        found and (found.st_mode, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        for found in find_files(tls).values()
    )


def _stat(name: str) -> os.stat_result | None:
    try:
        return Path(name).stat()
    except OSError:
        return None


_SUITES_OF_13 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_RENEGOTIATION_MARK = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""No suite, but Java lists it among them."""


def _restrict_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Allows these suites alone. A version of TLS of which none is named is not spoken, as in Java. Raises UsageError
    for a suite that OpenSSL lacks, or that needs no certificate or encrypts nothing, and if Python's ssl can't restrict
    those of TLS 1.3, which it can since 3.15.
    """
    setting = f"ssl.cipher.suites={','.join(names)}"
    of_13 = [name for name in _SUITES_OF_13 if name in names]
    of_12 = [name for name in names if name not in (*_SUITES_OF_13, _RENEGOTIATION_MARK)]
    for name in of_12:
        if not _has_suite(_openssl_name(name)) or re.search("anon|NULL", name, re.IGNORECASE):
            raise UsageError(f"{setting}: {name} is no suite that plog offers", hint="openssl ciphers -s -stdname")
    if of_12:
        context.set_ciphers(":".join(map(_openssl_name, of_12)))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not of_13:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif len(of_13) < len(_SUITES_OF_13) and context.maximum_version is not ssl.TLSVersion.TLSv1_2:
        if not hasattr(context, "set_ciphersuites"):
            missing = ", ".join(name for name in _SUITES_OF_13 if name not in of_13)
            raise UsageError(
                f"{setting} leaves out {missing}, which TLS 1.3 always has with this Python",
                hint="name all three of TLS 1.3, or none of them: then TLS 1.2 alone is spoken",
            )
        context.set_ciphersuites(":".join(of_13))
    if context.minimum_version > context.maximum_version:
        raise UsageError(f"{setting} has none for the versions of ssl.enabled.protocols")


def _has_suite(name: str) -> bool:
    """Returns whether it is a suite of TLS 1.2, and no name of many."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.set_ciphers(name)
    except (ssl.SSLError, ValueError):  # of a NUL
        return False
    return [one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"] == [name]


def _set_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Sets the cipher suites of TLS 1.2: OpenSSL's three of TLS 1.3 stay, whatever is configured."""
    wanted = [_openssl_name(name) for name in names if not re.match("TLS_(AES|CHACHA20)_", name)]
    if not wanted:
        return
    try:
        context.set_ciphers(":".join(wanted))
    except (ssl.SSLError, ValueError):  # of a NUL
        raise UsageError(f"ssl.cipher.suites={','.join(names)}: OpenSSL knows none of them") from None


def _openssl_name(name: str) -> str:
    """Translates Java's name of a suite: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    if not name.startswith("TLS_"):
        return name
    text = name.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES").removeprefix("RSA_")
    return text.replace("_CBC_", "_").replace("POLY1305_SHA256", "POLY1305").replace("_", "-")


# --- trust


def load_trust(context: ssl.SSLContext, trust: TrustStore | None) -> None:
    """Loads the trust store, or without one the system's."""
    if trust is None:
        context.load_default_certs()
    elif trust.certificates is not None:
        _trust_pem(context, trust.certificates, "ssl.truststore.certificates")
    else:
        assert trust.location is not None
        _trust_file(context, trust, Path(trust.location))


def _trust_file(context: ssl.SSLContext, trust: TrustStore, path: Path) -> None:
    if path.is_dir():
        _trust_folder(context, trust, path)
        return
    data = _read(path)
    _ensure_type(data, trust.type, path)
    if _is_pem(data):
        _trust_pem(context, _text(path), str(path))
        return
    _trust(context, b"".join(_trusted_by_store(data, path, trust.password)), str(path))


def _trusted_by_store(data: bytes, path: Path, password: Secret | None) -> list[bytes]:
    """Returns DER of each certificate of a JKS or PKCS12."""
    store = _read_store(data, path, password)
    found = [*store.certificates, *(chain[0] for _, chain in store.keys if chain)]
    if not found:
        raise UsageError(f"{path} holds no certificate")
    return found


def _trust_folder(context: ssl.SSLContext, trust: TrustStore, path: Path) -> None:
    """Loads PEM files, or OpenSSL's, whose names are hashes: it opens those itself, when it needs one."""
    if trust.type not in (None, StoreType.PEM):
        raise UsageError(f"{path} is a directory, expected {trust.type}")
    files = sorted(path.glob("*.pem"))
    by_hash = [one for one in path.iterdir() if re.fullmatch(r"[0-9a-f]{8}\.[0-9]+", one.name)]
    context.load_verify_locations(capath=str(path))
    if files or not by_hash:
        _trust_pem(context, "".join(map(_text, files)), f"the directory {path}")


def _trust_pem(context: ssl.SSLContext, text: str, where: str) -> None:
    blocks = [block for kind, block in _pem_blocks(text) if kind.endswith("CERTIFICATE")]
    if blocks:
        _trust(context, "".join(blocks), where)
    else:
        raise UsageError(f"{where} holds no certificate", hint="expected -----BEGIN CERTIFICATE-----")


def _trust(context: ssl.SSLContext, certificates: str | bytes, where: str) -> None:
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError, TypeError) as error:
        what = "it is no base64" if isinstance(error, TypeError) else _reason(error)  # a letter that is not ASCII
        raise UsageError(f"{where} holds a certificate that does not decode: {what}") from None


# --- our key


def _load_key(context: ssl.SSLContext, store: KeyStore) -> str:
    """Returns what was loaded as PEM."""
    pem, password = _key_pem(store)
    with _as_file(pem) as name:
        _load_pem(context, name, pem, password, store.location or store.key_location or "ssl.keystore.key")
    return pem


def _key_pem(store: KeyStore) -> tuple[str, Secret | None]:
    """Returns the key and its chain, and the password if it is encrypted still."""
    password = store.key_password
    if store.location is None:
        certificate = store.certificate_chain or _text(Path(store.certificate_location or ""))
        key = store.key.reveal() if store.key else _text(Path(store.key_location or ""))
        pem = _normal_pem(certificate) + _normal_pem(key)
    else:
        path = Path(store.location)
        data = _read(path)
        _ensure_type(data, store.type, path)
        if _is_pem(data):
            pem = _normal_pem(data.decode("latin-1"))
            password = password or store.password
        else:
            pem, password = _key_of_store(data, path, store), None
    return pem, password


def _key_of_store(data: bytes, path: Path, store: KeyStore) -> str:
    """Returns PEM of the first key and its chain."""
    found = _read_store(data, path, store.password, store.key_password, wants_keys=True)
    if not found.keys:
        raise UsageError(f"{path} holds no private key", hint="is it the trust store?")
    key, chain = found.keys[0]
    if not data.startswith(MAGIC):
        chain = _in_order([*chain, *found.certificates])
    return _to_pem("PRIVATE KEY", key) + "".join(_to_pem("CERTIFICATE", one) for one in chain)


def _in_order(certificates: list[bytes]) -> list[bytes]:
    """Returns the first certificate and those of its CAs, each before its issuer's. A PKCS12 has the others in any
    order, and those of further keys among them.
    """
    chain, others = certificates[:1], {_fields(one).subject: one for one in certificates[1:]}
    while chain and (issuer := _fields(chain[-1]).issuer) in others:
        chain.append(others.pop(issuer))
    return chain


_OF_ANOTHER_KEY = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")


def _load_pem(context: ssl.SSLContext, name: str, pem: str, password: Secret | None, where: str) -> None:
    def find_password() -> str:
        if password is None:
            raise UsageError(f"the key in {where} is encrypted, and there is no ssl.key.password")
        return password.reveal()

    kinds = [kind for kind, _ in _pem_blocks(pem)]
    for kind, found in (("PRIVATE KEY", "private key"), ("CERTIFICATE", "certificate")):
        if kinds and not any(one.endswith(kind) for one in kinds):
            raise UsageError(f"{where} holds no {found}, but {', '.join(map(str.lower, kinds))}")
    _ensure_quick(pem, where)
    try:
        context.load_cert_chain(name, password=find_password)
    except ssl.SSLError as error:
        what = _reason(error)
        if any(reason in what for reason in _OF_ANOTHER_KEY):
            raise UsageError(
                f"the key in {where} does not belong to its certificate",
                hint="the key's own certificate comes first, then those of its CAs, each before its issuer's",
            ) from None
        if error.reason:  # such as a key that is too small for OpenSSL's level of security
            raise UsageError(f"the certificate in {where} can't be used: {what.lower().replace('_', ' ')}") from None
        if password is not None:
            raise UsageError(f"the key in {where} can't be read: the password is wrong, or it is damaged") from None
        raise UsageError(
            f"the key in {where} can't be read: it is damaged",
            hint="expected -----BEGIN PRIVATE KEY----- and CERTIFICATE",
        ) from None


def _ensure_quick(pem: str, where: str) -> None:
    """Raises UsageError for a key whose password takes seconds to try, or, with 2^31 iterations, twenty minutes: it may
    come from a client that changes settings, and the broker would wait.
    """
    for kind, block in _pem_blocks(pem):
        if kind != "ENCRYPTED PRIVATE KEY":
            continue
        try:
            iterations = max(
                find_numbers(base64.b64decode("".join(block.splitlines()[1:-1]), validate=True)), default=0
            )
        except (ValueError, RecursionError):
            raise UsageError(f"the key in {where} can't be read: it is damaged") from None
        if iterations > MOST_ITERATIONS:
            raise UsageError(
                f"the key in {where} can't be used: its password takes {iterations} iterations, "
                f"expected at most {MOST_ITERATIONS}",
                hint="openssl pkcs8 -topk8 -iter 100000 encrypts it again",
            )


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yields a path at which OpenSSL finds the text."""
    is_in_memory = hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()
    # only we may read a temporary file
    with os.fdopen(os.memfd_create("plog-key"), "wb") if is_in_memory else tempfile.NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}" if is_in_memory else file.name


# --- for clients that take PEM files alone


@contextlib.contextmanager
def as_pem_files(tls: Tls) -> Iterator[dict[str, str]]:
    """Yields `ssl.ca.location`, `ssl.certificate.location` and `ssl.key.password`, as librdkafka names them; temporary
    files for it are deleted afterwards. Raises what `make_context` raises.
    """
    make_context(tls)  # raises UsageError for invalid files
    found = {}
    with contextlib.ExitStack() as files:
        if tls.trust is not None:
            found["ssl.ca.location"] = _trust_as_pem(tls.trust, files)
        if tls.key_store is not None:
            pem, password = _key_pem(tls.key_store)
            found["ssl.certificate.location"] = files.enter_context(_as_file(pem))
            if password is not None:
                found["ssl.key.password"] = password.reveal()
        yield found


def _trust_as_pem(trust: TrustStore, files: contextlib.ExitStack) -> str:
    if trust.location is None:
        return files.enter_context(_as_file(_normal_pem(trust.certificates or "")))
    path = Path(trust.location)
    if path.is_dir() or _is_pem(data := _read(path)):
        return trust.location
    found = _trusted_by_store(data, path, trust.password)
    return files.enter_context(_as_file("".join(_to_pem("CERTIFICATE", one) for one in found)))


# --- the contents of a file


def read_certificates(path: Path, find_password: Callable[[], Secret | None]) -> list[bytes]:
    """Returns DER of every certificate in a PEM, DER, PKCS12 or JKS file, a key's own before its chain. `find_password`
    is called if the file can't be read without one. Raises AccessError for a file that can't be read, UsageError for
    one that holds no certificate.
    """
    try:
        data = _read(path)
    except UsageError as error:
        if isinstance(error.__cause__, OSError):
            raise access_error(error.__cause__, path, "read") from error
        raise
    _ensure_type(data, None, path)
    if _is_pem(data):
        found = [_der(block, path) for block in _certificate_blocks(data.decode("latin-1"), path)]
    elif not data.startswith(MAGIC) and _is_der_certificate(data):
        found = [data]
    else:
        store = _read_store_or_ask(data, path, find_password)
        found = [*(one for _, chain in store.keys for one in chain), *store.certificates]
    if not found:
        raise UsageError(f"{path} holds no certificate")
    return found


def _certificate_blocks(text: str, path: Path) -> list[str]:
    blocks = list(_pem_blocks(text))
    found = [block for kind, block in blocks if kind == "CERTIFICATE"]
    if not found and blocks:
        raise UsageError(f"{path} holds no certificate, but {', '.join(kind.lower() for kind, _ in blocks)}")
    return found


def _is_der_certificate(data: bytes) -> bool:
    """Returns whether a sequence begins with a sequence, as in a certificate; PKCS12 begins with a number."""
    start = 2 + (data[1] & 0x7F if len(data) > 1 and data[1] & 0x80 else 0)
    return data[start : start + 1] == b"\x30"


def _read_store_or_ask(data: bytes, path: Path, find_password: Callable[[], Secret | None]) -> JavaKeyStore:
    """Reads a JKS or PKCS12 without a password; with one if that can't be done."""
    try:
        return _read_store(data, path, None)
    except UsageError as error:
        password = None if isinstance(error.__cause__, ImportError) or data.startswith(MAGIC) else find_password()
        if password is None:
            raise
        return _read_store(data, path, password)


# --- files


def _read(path: Path) -> bytes:
    """Does not open a file without a size: the system has some whose readers wait, such as /proc/kmsg."""
    try:
        found = path.stat()
        data = b""
        if found.st_size or not stat.S_ISREG(found.st_mode):
            with path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"could not read {path}: {(error.strerror or str(error)).lower()}") from error
    if not data:
        raise UsageError(f"{path} is empty")
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path} is no key store: it has more than {_MOST_BYTES} bytes")
    return data


def _text(path: Path) -> str:
    return _read(path).decode("latin-1")  # comments may be in any code


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def _ensure_type(data: bytes, type_: StoreType | None, path: Path) -> None:
    if data.startswith(JCEKS_MAGIC):
        raise UsageError(
            f"{path} is a JCEKS key store, which plog does not read",
            hint="keytool -importkeystore -deststoretype PKCS12 makes one that it does",
        )
    is_other = not _is_pem(data) and not data.startswith(MAGIC) and data[0] != 0x30
    if is_other or (type_ is not None and (type_ is StoreType.PEM) != _is_pem(data)):
        found = "nothing that plog knows" if is_other else "PEM" if _is_pem(data) else "JKS or PKCS12"
        raise UsageError(f"{path} is {found}, expected {type_ or 'PEM, PKCS12 or JKS'}")


def _read_store(
    data: bytes, path: Path, password: Secret | None, key_password: Secret | None = None, *, wants_keys: bool = False
) -> JavaKeyStore:
    """Reads a JKS or PKCS12. A key of a PKCS12 has its own certificate alone as its chain: the others are in any order,
    and further keys' among them.
    """
    if not data.startswith(MAGIC):
        return _read_pkcs12(data, path, password)
    passwords = (one.reveal() if one else None for one in (password, key_password))
    try:
        return parse_jks(data, *passwords, wants_keys=wants_keys)
    except KeyStoreError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


def _read_pkcs12(data: bytes, path: Path, password: Secret | None) -> JavaKeyStore:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError as error:
        raise UsageError(
            f"{path} is PKCS12, which needs more packages: cryptography",
            hint="pip install 'plog-kafka[security]', or use PEM",
        ) from error
    warnings.filterwarnings("ignore", "PKCS#12 bundle could not be parsed as DER")  # it is read all the same
    secret = password.reveal().encode() if password else None
    try:
        if secret is not None and b"\0" in secret:
            raise ValueError  # at which the library panics: that is no Exception
        found = load_pkcs12(data, secret)
    except (ValueError, TypeError):
        what = "the password is wrong, or it is damaged" if password else "it is damaged, or needs a password"
        hint = None if password else "ssl.truststore.password, ssl.keystore.password; plog cert show --password"
        raise UsageError(f"{path} can't be read as PKCS12: {what}", hint=hint) from None
    store = JavaKeyStore([one.certificate.public_bytes(Encoding.DER) for one in found.additional_certs])
    if found.key is not None and found.cert is not None:
        key = found.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        store.keys.append((key, [found.cert.certificate.public_bytes(Encoding.DER)]))
    return store


# --- PEM


def _pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yields (kind, block) of each, its base64 on lines of its own: in a line of settings it may stand among spaces."""
    for found in _PEM.finditer(text.replace("\\n", "\n")):
        body = found[2].strip()
        if ":" not in body:  # old keys have headers
            body = "\n".join(re.findall(".{1,64}", "".join(body.split())))
        yield found[1], f"-----BEGIN {found[1]}-----\n{body}\n-----END {found[1]}-----\n"


def _normal_pem(text: str) -> str:
    return "".join(block for _, block in _pem_blocks(text)) or text


def _to_pem(kind: str, der: bytes) -> str:
    return next(_pem_blocks(f"-----BEGIN {kind}-----{base64.b64encode(der).decode()}-----END {kind}-----"))[1]


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
