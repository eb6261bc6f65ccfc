"""`rlmplan models | hardware | schema`: look at what the planner knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from planner.errors import InputError

if TYPE_CHECKING:
    from planner.schema import Schema

models_app = typer.Typer(help="Models in the catalogue.", no_args_is_help=True)
hardware_app = typer.Typer(help="Devices and clusters.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(models_app, name="models")
    app.add_typer(hardware_app, name="hardware")
    app.command("schema")(schema)


@models_app.command("list")
def models_list(json: Json = False) -> None:
    """All models of the catalogue with their parameter counts."""
    from planner.catalog.models import list_models, load_model
    from planner.cost.parameters import count_parameters
    from planner.report.units import count

    rows = []
    for summary in list_models():
        counts = count_parameters(load_model(summary.name))
        rows.append((summary.name, summary.architecture, int(counts.total), int(counts.active)))
    if json:
        keys = ("name", "architecture", "total_parameters", "active_parameters")
        _echo_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    width = max(len(row[0]) for row in rows)
    for name, architecture, total, active in rows:
        moe = f"  {count(active)} active" if active < 0.95 * total else ""
        typer.echo(f"{name:<{width}}  {architecture:<12} {count(total):>8}{moe}")


@models_app.command("show")
def models_show(
    name: Annotated[str, typer.Argument(help="A catalogue name, a config.json or a folder.")],
    json: Json = False,
) -> None:
    """One model's architecture and parameter count."""
    from planner.catalog.models import load_model
    from planner.cost.parameters import count_parameters
    from planner.report.units import count

    spec = load_model(name)
    if json:
        typer.echo(spec.model_dump_json(indent=2))
        return
    counts = count_parameters(spec)
    typer.echo(f"{spec.name}: {count(counts.total)} parameters")
    tied = " (tied: it stays as the output head)" if spec.tie_embeddings else ""
    for words, number in (
        ("active for each token, both embeddings included", counts.active),
        (f"active without the input embedding{tied}", counts.active_without_input_embedding),
        ("active without both embeddings", counts.active_without_embeddings),
    ):
        typer.echo(f"  {count(number):>8} {words}")
    _echo_fields(spec.model_dump(exclude_none=True, exclude={"name"}))


@hardware_app.command("list")
def hardware_list(json: Json = False) -> None:
    """All devices and the cluster names of --cluster."""
    from planner.catalog.hardware import list_clusters, list_devices, load_device
    from planner.report.units import dollars, gib, rate

    devices = [load_device(name) for name in list_devices()]
    if json:
        _echo_json(
            {
                "devices": [device.model_dump(mode="json") for device in devices],
                "clusters": list(list_clusters()),
            }
        )
        return
    for device in devices:
        kernels = "measured kernels" if device.kernel_table_is_own else "scaled kernels"
        typer.echo(
            f"{device.id:<20} {rate(device.peak_flop_per_s['bf16'], 'FLOP/s bf16'):<20} "
            f"{gib(device.memory_bytes):>10}  "
            f"{rate(device.memory_bandwidth_bytes_per_s, 'B/s'):>10}  "
            f"{dollars(device.price_usd_per_hour):>6}/h  {kernels}"
        )
    typer.echo(f"\nclusters (NAME:NODESxDEVICES): {', '.join(list_clusters())}")


@hardware_app.command("show")
def hardware_show(
    name: Annotated[
        str, typer.Argument(help="A device id, a cluster type (h100) or a cluster (h100:4x8).")
    ],
    json: Json = False,
) -> None:
    """One device's profile, a cluster type, or a cluster, with its sources.

    A name of both a device and a cluster type shows the device, and in text the type after it.
    """
    from planner.catalog.hardware import (
        describe_cluster,
        list_clusters,
        list_devices,
        load_device,
        parse_cluster,
    )

    found: list[dict[str, object]] = []
    if name in list_devices():
        found.append(load_device(name).model_dump(mode="json", exclude_none=not json))
    if name in list_clusters():
        found.append(describe_cluster(name))
    if not found:
        found.append(parse_cluster(name).model_dump(mode="json", exclude_none=not json))
    if json:
        _echo_json(found[0])
        return
    for index, fields in enumerate(found):
        if index:
            typer.echo()
        _echo_fields(fields)


def schema(
    name: Annotated[
        str | None,
        typer.Argument(help="A type, for example PlanSet or ProblemFile; without it, their names."),
    ] = None,
) -> None:
    """Print the JSON schema of an answer (PlanSet, ParetoFront, Replan), of a file as users write
    it (ProblemFile, ClusterFile, DeviceFile, FleetFile), or of a type inside them."""
    import difflib

    types = _schemas()
    if name is None:
        for each in sorted(types):
            typer.echo(each)
        return
    if name not in types:
        near = difflib.get_close_matches(name, types, n=1, cutoff=0.5)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise InputError(
            f"no schema named {name!r}", remedy=f"{hint}There are: {', '.join(sorted(types))}"
        )
    _echo_json(types[name].model_json_schema())


def _schemas() -> dict[str, type[Schema]]:
    """Every type with a schema by name: those of `planner.schema`, and the files users write."""
    import planner.schema
    from planner.catalog import fleet_file, hardware_files, problem_file
    from planner.schema import Schema, capacity, explain, fleet

    found: dict[str, type[Schema]] = {}
    for module in (
        planner.schema,
        capacity,
        explain,
        fleet,
        problem_file,
        hardware_files,
        fleet_file,
    ):
        for key, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Schema) and value is not Schema:
                found[key] = value
    return found


def _echo_json(value: object) -> None:
    import json as json_module

    typer.echo(json_module.dumps(value, indent=2))


def _echo_fields(fields: object, indent: int = 0) -> None:
    import yaml

    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
    typer.echo("\n".join(" " * indent + line for line in text.splitlines()))
