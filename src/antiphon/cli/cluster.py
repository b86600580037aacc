"""`antiphon cluster`: keys and files of a cluster that spans several hosts."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from antiphon.errors import UsageError
from antiphon.types import NetworkConfig

from .settings import load, read_cluster

cluster_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Prepare a cluster that spans several hosts.",
    epilog="Begin with: antiphon cluster keys keys --config cluster.toml",
)


@cluster_app.command()
def keys(
    folder: Annotated[
        Path, typer.Argument(help="Where keys are made; private to you.", show_default=False)
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Make keys for this host; again for each.", metavar="NAME"),
    ] = None,
    gateway: Annotated[
        str | None,
        typer.Option(help="The host of the gateway; it gets keys too.", metavar="NAME"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Make keys for all hosts of this file that have none.", metavar="FILE"),
    ] = None,
    days: Annotated[
        int, typer.Option(help="How long hosts' keys are in force.", min=1, max=3650)
    ] = 365,
) -> None:
    """Make keys and certificates for hosts, by the cluster's own authority.

    The first time it makes the authority, in FOLDER/authority, which stays with you: whoever has it
    can make hosts. Copy FOLDER/NAME to host NAME, and nothing else. What is there is never written
    again: a host comes in later with --host, and new keys need the old ones removed first.

    \b
    antiphon cluster keys keys --config cluster.toml
    antiphon cluster keys keys --gateway box1 --host box2
    antiphon cluster keys keys --host box3

    Keys and certificates are in PEM, readable by you alone (0600).
    """
    wanted = _wanted(host or [], gateway, config, folder)
    if config is not None and not wanted:
        typer.echo(f"all hosts of {config} have keys in {folder}")
        return
    if not wanted:
        raise UsageError("no host that is to have keys: say --host NAME, --gateway or --config")
    from antiphon.live.network.authority import AUTHORITY, add_host, check_hosts, open_authority

    check_hosts(folder, wanted)
    authority, new = open_authority(folder)
    if new:
        typer.echo(f"{folder / AUTHORITY}: a new authority; keep it here, and keep it secret")
    for name, is_gateway in wanted.items():
        own = add_host(folder, authority, name, gateway=is_gateway, days=days)
        what = ", the gateway's" if is_gateway else ""
        typer.echo(f"{own}: keys of host {name}{what}, in force for {days} days: copy them there")


@cluster_app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The cluster's file.", show_default=False)],
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder of `antiphon cluster keys`, or of one host.", metavar="FOLDER"),
    ] = None,
    dial: Annotated[
        bool,
        typer.Option("--dial", help="Call each host, too, with a host's keys; needs --keys."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False,
) -> None:
    """Check a cluster's file, and how long its hosts' keys are in force.

    It is told what brings KV from host to host, too, and if that is NIXL, whether this host has it.

    With --dial each address of each host is called from here, at its gateway, its store and, if
    `worker_port` says where, its workers: both sides show their certificates, and it is told how
    long an answer takes, how fast the way is (at least: of one answer), and how far the clock
    there is ahead. Hosts' clocks need not agree, but certificates are dated.

    \b
    antiphon cluster check cluster.toml --keys keys
    antiphon cluster check cluster.toml --keys box2 --dial
    antiphon cluster check cluster.toml --keys keys --json | jq '.hosts[] | select(.days_left < 30)'

    Exit code 2: the file, or some key, is not right. 1: with --dial, somebody does not answer.
    """
    if dial and keys is None:
        raise UsageError("--dial needs --keys FOLDER: who is called asks for a host's certificate")
    cluster = read_cluster(file)
    rows: list[dict[str, Any]] = [
        {
            "host": host.name,
            "gateway": host.gateway,
            "addresses": list(host.addresses),
            "workers": list(host.names()),
            "days_left": None,
        }
        for host in cluster.hosts.values()
    ]
    if keys is not None:
        from antiphon.live.network.key_check import days_left

        left = days_left(keys, {host.name: host.gateway for host in cluster.hosts.values()})
        for row in rows:
            row["days_left"] = left.get(row["host"])
    silent = False
    if dial and keys is not None:
        from .cluster_dial import dial_hosts

        silent = dial_hosts(cluster, keys, rows)
    network = load(file, None, cluster.gateway.name, reaches_hosts=False).network
    has_nixl = _has_nixl() if network.kv_transport == "nixl" else None
    if as_json:
        how = {"transport": network.kv_transport, "encrypted": network.encrypt_kv}
        told = {"hosts": rows, "kv": {**how, "nixl_here": has_nixl}}
        typer.echo(json.dumps(told, indent=2))
    else:
        _show(rows)
        typer.echo(_kv_line(network, has_nixl))
    raise typer.Exit(int(silent))


def _has_nixl() -> bool:
    from antiphon.adapters.nixl_agent import is_installed

    return is_installed()


def _kv_line(network: NetworkConfig, has_nixl: bool | None) -> str:
    if has_nixl is None:
        return f"KV between hosts: tcp, {'encrypted' if network.encrypt_kv else 'not encrypted'}"
    here = "is installed here" if has_nixl else "is not here: pip install 'antiphon[nixl]'"
    return f"KV between hosts: nixl (tcp where that fails), not encrypted; NIXL {here}"


def _show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        what = "gateway, " if row["gateway"] else ""
        workers = ", ".join(row["workers"]) or "no worker"
        force = "" if row["days_left"] is None else f"; keys in force for {row['days_left']} days"
        at = ", ".join(row["addresses"])
        typer.echo(f"{row['host']} ({at}): {what}{workers}{force}")
        for called in row.get("dialed", ()):
            typer.echo(f"  {called['what']} at {called['address']}: {called['summary']}")
        if row.get("dialed") == []:
            typer.echo("  nothing to call: its workers' ports are free ones (set worker_port)")


def _wanted(
    hosts: list[str], gateway: str | None, config: Path | None, folder: Path
) -> dict[str, bool]:
    """Hosts that are to have keys, and whether each is the gateway's. Those of a file that have
    some are left as they are."""
    wanted = dict.fromkeys(hosts, False)
    if gateway is not None:
        wanted[gateway] = True
    if config is not None:
        for one in read_cluster(config).hosts.values():
            if not (folder / one.name).exists():
                wanted[one.name] = one.gateway
            elif one.name in wanted:
                wanted[one.name] |= one.gateway
    return wanted
