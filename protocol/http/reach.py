"""Which addresses a client may connect to when somebody else chose the URL.

A stranger's URL must not make this machine ask its own services, its local network or a cloud's metadata service.
Names are resolved once and the connection goes to an address that was judged: neither a redirect nor a name that
resolves differently a moment later gets around it.
"""

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from protocol.errors import UnreachableError

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
_INSIDE = (
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("168.63.129.16/32"),
    ipaddress.IPv4Network("192.88.99.0/24"),
)
"""What Python takes for public: protocol assignments (cloud metadata among them), Azure's services, the 6to4 relay."""
_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""Third quarter of an IPv6 address whose last quarter is the IPv4 address that a tunnel leads to (RFC 5214)."""


class RefusedAddressError(UnreachableError):
    """A URL of a stranger leads to an address that only the machine's operator may name."""


@dataclass(frozen=True)
class Reach:
    """Public addresses, those of the URLs in `own` (which the operator wrote), and with `private` all others too."""

    own: tuple[str, ...] = ()
    private: bool = False

    def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host, in the resolver's order. Raises RefusedAddressError if one of them may not be
        connected to, OSError if the name does not resolve."""
        addresses = _resolve(host, port)
        inside = [] if self.private else [address for address in addresses if not is_public(address)]
        mine = _addresses_of(self.own) if inside else set()
        for address in inside:
            if address not in mine:
                raise RefusedAddressError(
                    f"{host[:100]} leads to {address}, an address of a private network",
                    "if that network is yours, set `allow_private_sources` in the configuration",
                )
        return addresses


PUBLIC = Reach()
ANYWHERE = Reach(private=True)


def is_public(address: str) -> bool:
    """Return whether an address is one of the Internet's; IPv6 ones that carry an IPv4 address are judged by it."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64 or int(ip) >> 32 & 0xFFFF_FFFF in _ISATAP:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
        return ip.is_global and ip in _UNICAST and ip not in _DOCUMENTATION
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _INSIDE)


def _addresses_of(urls: tuple[str, ...]) -> set[str]:
    addresses: set[str] = set()
    for url in urls:
        try:
            addresses.update(_resolve(urlsplit(url).hostname or "", 0))
        except (OSError, ValueError):
            continue
    return addresses


def _resolve(host: str, port: int) -> list[str]:
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host[:100]!r} is not a host name: {error}") from None
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))
