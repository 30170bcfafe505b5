"""A simulated country: place names, coast, counties, communities and populations."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import Voronoi, cKDTree
from scipy.special import ndtri

_STEMS = (
    "Alm Arn Bel Birk Brev Bron Dalm Dorl Eck Elb Erl Falk Fenn Flem Gall Gern Gor Grav Hall Harl "
    "Hesp Holm Ilm Imm Jess Kalm Karn Kell Korb Lamm Lehn Lind Lorn Mark Melk Mohr Morn Nass Nerl "
    "Oden Orl Pell Plan Quer Rall Rehn Rosch Sand Schell Sieg Sorn Stark Tann Torn Ull Urm Varn "
    "Wall Wend Werl Wold Zell Zorn Zwick"
)
_FIRST = _STEMS.split()
_MIDDLE = ["", "e", "en", "er", "in", "ol", "am", "ers", "els", "ing"]
_ENDINGS = (
    "au bach berg brück büll burg dorf feld furt hagen hausen heim hofen horst kirchen leben "
    "moor rode roth stadt stedt tal walde weiler winkel zell"
)
_LAST = _ENDINGS.split()
_BEFORE = ["", "Alt", "Bad ", "Groß ", "Klein ", "Neu", "Nieder", "Ober", "Unter", "Sankt "]
_STATES = ["land", "mark", "gau", "ingen", "ien", "stein"]


def place_names(count: int, rng: np.random.Generator, *, state: bool = False) -> tuple[str, ...]:
    """So many different names of places or of states."""
    if state:
        parts: tuple[list[str], ...] = (_FIRST, _MIDDLE[:3], _STATES)
    elif count <= len(_FIRST) * len(_MIDDLE) * len(_LAST) // 2:
        parts = (_FIRST, _MIDDLE, _LAST)
    else:
        parts = (_BEFORE, _FIRST, _MIDDLE, _LAST)
    sizes = [len(part) for part in parts]
    chosen = rng.choice(int(np.prod(sizes)), count, replace=False)
    digits = np.unravel_index(chosen, sizes)
    words = ([part[i] for i in which] for part, which in zip(parts, digits, strict=True))
    names = ("".join(word) for word in zip(*words, strict=True))
    return tuple(name if " " in name else name.capitalize() for name in names)


Array = NDArray[np.float64]
Index = NDArray[np.int64]

CORNER = (8.0, 47.5)
"""Longitude and latitude of the plane's origin, in a part of the world with land around."""
KM_PER_DEGREE = 111.2
DECIMALS = 4
COAST_POINTS = 720


@dataclass(frozen=True)
class Shapes:
    """Polygons in longitude and latitude; a county is exactly the union of its communities."""

    communities: NDArray[np.object_]
    counties: NDArray[np.object_]


def coastline(area: float, rng: np.random.Generator) -> Array:
    """A closed irregular line around so many square kilometres."""
    angle = np.linspace(0, 2 * np.pi, COAST_POINTS, endpoint=False)
    radius = np.ones(COAST_POINTS)
    for wave in range(2, 60):
        radius += (
            0.22 / wave**1.15 * rng.normal() * np.cos(wave * angle + rng.uniform(0, 2 * np.pi))
        )
    radius = np.maximum(radius, 0.35)
    line = np.stack([0.85 * radius * np.cos(angle), 1.15 * radius * np.sin(angle)], axis=1)
    x, y = line.T
    enclosed = 0.5 * abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))
    line *= np.sqrt(area / enclosed)
    return np.asarray(line - line.min(0))


def points_inside(coast: Array, count: int, rng: np.random.Generator) -> Array:
    """Uniform random points within the coast."""
    width, height = coast.max(0)
    share = shapely.area(shapely.polygons(coast)) / (width * height)
    points: list[Array] = []
    missing = count
    while missing > 0:
        tried = rng.random((int(missing / share * 1.02) + 16, 2)) * (width, height)
        kept = tried[inside(coast, tried)][:missing]
        points.append(kept)
        missing -= len(kept)
    return np.concatenate(points)


def inside(coast: Array, points: Array) -> NDArray[np.bool_]:
    """Which points are on land."""
    land = shapely.polygons(coast)
    shapely.prepare(land)
    return np.asarray(shapely.contains_xy(land, points[:, 0], points[:, 1]))


def voronoi(points: Array) -> tuple[Array, Index, Index]:
    """Voronoi cells: ordered vertices, the cell of each vertex, and the pairs of adjacent cells."""
    low, high = points.min(0), points.max(0)
    middle, reach = (low + high) / 2, 10 * max(float((high - low).max()), 10.0)
    turn = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    far = middle + reach * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    diagram = Voronoi(np.concatenate([points, far]))
    n = len(points)
    pairs = diagram.ridge_points
    ends = np.asarray(diagram.ridge_vertices)
    edges = pairs[(pairs < n).all(1)]
    cell = np.concatenate([pairs[:, 0], pairs[:, 1]]).repeat(2)
    vertex = np.concatenate([ends, ends]).ravel()
    kept = (cell < n) & (vertex >= 0)
    both = np.unique(np.stack([cell[kept], vertex[kept]], axis=1), axis=0)
    cell, vertices = both[:, 0], diagram.vertices[both[:, 1]]
    offset = vertices - points[cell]
    order = np.lexsort((np.arctan2(offset[:, 1], offset[:, 0]), cell))
    return vertices[order], cell[order].astype(np.int64), edges.astype(np.int64)


def lon_lat_shapes(cells: tuple[Array, Index], coast: Array, county_of: Index) -> Shapes:
    """Clip the cells to the coast, convert kilometres to degrees and unite counties.

    Neighbours share their vertices, and equal numbers round to equal numbers, so rounding opens
    no gap. Counties are united after rounding, so nesting is exact.
    """
    vertices, cell_of = cells
    land = shapely.polygons(coast)
    shapely.prepare(land)
    polygons = shapely.polygons(shapely.linearrings(vertices, indices=cell_of))
    shore = ~shapely.contains_properly(land, polygons)
    polygons[shore] = shapely.intersection(polygons[shore], land)
    polygons = shapely.transform(polygons, lambda xy: np.round(_degrees(xy), DECIMALS))
    polygons = shapely.remove_repeated_points(polygons)
    broken = ~shapely.is_valid(polygons)
    polygons[broken] = shapely.buffer(shapely.make_valid(polygons[broken]), 0)
    bounds = np.flatnonzero(np.diff(county_of, prepend=-1))
    groups = np.split(polygons, bounds[1:])
    counties = np.array([shapely.union_all(group) for group in groups], dtype=object)
    return Shapes(communities=polygons, counties=counties)


def geojson(ids: Iterable[str], names: Iterable[str], polygons: NDArray[np.object_]) -> str:
    """A GeoJSON feature collection, one line per feature."""
    texts = shapely.to_geojson(polygons)
    lines = [
        json.dumps({"type": "Feature", "id": i, "properties": {"id": i, "name": name}})[:-1]
        + f', "geometry": {text}}}'
        for i, name, text in zip(ids, names, texts, strict=True)
    ]
    return '{"type":"FeatureCollection","features":[\n' + ",\n".join(lines) + "\n]}\n"


def _degrees(kilometres: NDArray[Any]) -> Array:
    latitude = CORNER[1] + kilometres[:, 1] / KM_PER_DEGREE
    longitude = CORNER[0] + kilometres[:, 0] / (KM_PER_DEGREE * np.cos(np.radians(51)))
    return np.stack([longitude, latitude], axis=1)


COUNTY_MEDIAN = 147_500
COUNTY_MEAN = 205_400
"""Between the paper's county mean (200,500 × 400) and its community mean (7,800 × 10,786)."""
LARGEST_COUNTY = 3_690_000
COMMUNITY_MEDIAN_PER_MEAN = 1_832 / (COUNTY_MEAN * 400 / 10_786)
CITY_SHARE = 0.265
"""Share of counties that are one community: 106 of 400 in the real country."""
STATES = 16
AREA_PER_COUNTY = 894.0
"""Square kilometres, as in a country of 357,600 km² with 400 counties."""
SMALLEST_COMMUNITY = 10
POOL_PER_COMMUNITY = 30


@dataclass(frozen=True)
class Country:
    """Communities nested in counties nested in states; arrays are indexed by community or county.

    Communities are sorted by id, so those of one county are contiguous in every array.
    """

    community_ids: tuple[str, ...]
    community_names: tuple[str, ...]
    community_population: Index
    county_of: Index
    """Row of the county of every community."""
    county_ids: tuple[str, ...]
    county_names: tuple[str, ...]
    state_of: Index
    """Row of the state of every county."""
    state_names: tuple[str, ...]
    positions: Array
    """Kilometres east and north, one row per community."""
    cells: tuple[Array, Index]
    """Voronoi cells of the communities in kilometres: vertices and the community of each."""
    coast: Array

    @cached_property
    def county_starts(self) -> Index:
        """Row of the first community of every county."""
        return np.searchsorted(self.county_of, np.arange(len(self.county_ids)))

    def by_county(self, values: NDArray[np.generic]) -> NDArray[np.int64]:
        """Sums over the communities of every county."""
        return np.asarray(np.add.reduceat(values, self.county_starts, axis=0, dtype=np.int64))

    @cached_property
    def county_population(self) -> Index:
        """Inhabitants of every county."""
        return self.by_county(self.community_population)

    @cached_property
    def county_positions(self) -> Array:
        """Mean position of a county's communities, in kilometres."""
        sums = np.add.reduceat(self.positions, self.county_starts, axis=0)
        return np.asarray(sums / np.bincount(self.county_of)[:, None])

    @cached_property
    def shapes(self) -> Shapes:
        """Polygons of communities and counties in longitude and latitude."""
        return lon_lat_shapes(self.cells, self.coast, self.county_of)


def make_country(counties: int, communities: int, seed: np.random.SeedSequence) -> Country:
    """Make a country of so many counties and communities."""
    place, people, naming = (np.random.default_rng(s) for s in seed.spawn(3))
    positions, county_of, cells, coast, edges = _places(counties, communities, place)
    state_of = _states(positions, county_of, edges, counties, place)
    positions, county_of, state_of, cells = _in_order(positions, county_of, state_of, cells)
    population = _populations(county_of, counties, people)

    within_state = np.arange(counties) - np.searchsorted(state_of, state_of)
    county_ids = tuple(
        f"{s + 1:02d}{i + 1:03d}" for s, i in zip(state_of, within_state, strict=True)
    )
    first = np.searchsorted(county_of, np.arange(counties))
    within = np.arange(communities) - first[county_of]
    community_ids = tuple(f"{county_ids[c]}{i:03d}" for c, i in zip(county_of, within, strict=True))
    names = place_names(communities, naming)
    county_names = _county_names(names, population, county_of, counties)
    state_names = place_names(int(state_of.max()) + 1, naming, state=True)
    return Country(
        community_ids=community_ids,
        community_names=names,
        community_population=population,
        county_of=county_of,
        county_ids=county_ids,
        county_names=county_names,
        state_of=state_of,
        state_names=state_names,
        positions=positions,
        cells=cells,
        coast=coast,
    )


def _places(
    counties: int, communities: int, rng: np.random.Generator
) -> tuple[Array, Index, tuple[Array, Index], Array, Index]:
    """Positions of communities, their counties, cells, the coast and the pairs of neighbours."""
    rural = min(round(counties * (1 - CITY_SHARE)), communities - counties)
    cities = counties - rural
    coast = coastline(AREA_PER_COUNTY * counties, rng)
    pool = points_inside(coast, POOL_PER_COMMUNITY * communities + 50 * counties, rng)
    centres = _ashore(_spaced(pool, counties, rng), coast, pool)
    rng.shuffle(centres)
    city_at, rural_at = centres[:cities], centres[cities:]
    county_of = np.arange(cities)
    positions = city_at
    if rural:
        sizes = _communities_per_county(rural_at, communities - cities, rng)
        free = pool
        if cities:
            spacing = np.sqrt(AREA_PER_COUNTY * counties / communities)
            radius = min(1.6 * spacing, 0.35 * np.sqrt(AREA_PER_COUNTY))
            free = pool[cKDTree(city_at).query(pool)[0] > radius]
        nearest = cKDTree(rural_at).query(free)[1]
        order = np.argsort(nearest, kind="stable")
        held = np.bincount(nearest, minlength=rural)
        ends = np.cumsum(held)
        owner = np.repeat(np.arange(rural), sizes)
        pick = (ends - held)[owner] + np.floor(rng.random(owner.size) * held[owner]).astype(int)
        spacing = np.sqrt(AREA_PER_COUNTY * counties / len(pool))
        scattered = free[order[np.minimum(pick, len(free) - 1)]]
        scattered = scattered + rng.uniform(-0.5, 0.5, scattered.shape) * spacing
        positions = np.concatenate([city_at, scattered])
        county_of = np.concatenate([county_of, cities + owner])
    for _ in range(2):
        positions[cities:] = _lloyd(positions, pool)[cities:]
    positions = _ashore(positions, coast, pool)
    vertices, cell_of, edges = voronoi(positions)
    county_of = _connected(county_of, edges)
    return positions, county_of, (vertices, cell_of), coast, edges


def _spaced(pool: Array, count: int, rng: np.random.Generator) -> Array:
    """Evenly but irregularly spaced points: two steps of Lloyd's algorithm from random ones."""
    centres = rng.choice(pool, count, replace=False)
    few = pool[rng.integers(0, len(pool), 60 * count)]
    for _ in range(2):
        centres = _lloyd(centres, few)
    return centres


def _ashore(positions: Array, coast: Array, pool: Array) -> Array:
    """Move positions that lie in water, such as in a bay, to the nearest free land."""
    tree = cKDTree(pool)
    distance, place = tree.query(positions)
    taken = set(place[distance == 0].tolist())
    for i in np.flatnonzero(~inside(coast, positions)):
        near = tree.query(positions[i], k=min(len(taken) + 1, len(pool)))[1]
        free = next(p for p in np.atleast_1d(near).tolist() if p not in taken)
        positions[i] = pool[free]
        taken.add(free)
    return positions


def _lloyd(centres: Array, pool: Array) -> Array:
    nearest = cKDTree(centres).query(pool)[1]
    held = np.bincount(nearest, minlength=len(centres))
    sums = np.stack([np.bincount(nearest, pool[:, i], len(centres)) for i in (0, 1)], axis=1)
    return np.where(held[:, None] > 0, sums / np.maximum(held, 1)[:, None], centres)


def _communities_per_county(centres: Array, total: int, rng: np.random.Generator) -> Index:
    """Numbers of communities, at least two each; similar regions lie side by side."""
    regions = rng.choice(centres, min(STATES, len(centres)), replace=False)
    region = cKDTree(regions).query(centres)[1]
    weight = np.exp(
        0.55 * rng.normal(size=len(regions))[region] + 0.5 * rng.normal(size=len(centres))
    )
    weight = np.minimum(weight, 6 * weight.mean())
    least = min(2, total // len(centres))
    sizes = least + _apportion(weight, total - least * len(centres))
    return np.asarray(sizes, dtype=np.int64)


def _apportion(weight: Array, total: int) -> Index:
    """Whole numbers in proportion to the weights that add up to the total (largest remainder)."""
    share = weight / weight.sum() * total
    whole: Index = np.floor(share).astype(np.int64)
    short = int(total - whole.sum())
    whole[np.argsort(whole - share, kind="stable")[:short]] += 1
    return whole


def _connected(group: Index, edges: Index) -> Index:
    """Move each part that is cut off from its group's largest part to an adjacent group."""
    group = group.copy()
    n = len(group)
    for _ in range(20):
        same = group[edges[:, 0]] == group[edges[:, 1]]
        inner = edges[same]
        graph = coo_array((np.ones(len(inner)), (inner[:, 0], inner[:, 1])), shape=(n, n))
        part = connected_components(graph, directed=False)[1]
        size = np.bincount(part)
        biggest = np.zeros(group.max() + 1, dtype=np.int64)
        np.maximum.at(biggest, group, size[part])
        order = np.lexsort((part, -size[part], group))
        main = np.full(group.max() + 1, -1)
        main[group[order[::-1]]] = part[order[::-1]]
        astray = part != main[group]
        if not astray.any():
            break
        a, b = edges[~same].T
        a, b = np.concatenate([a, b]), np.concatenate([b, a])
        rescue = astray[a] & ~astray[b]
        group[a[rescue]] = group[b[rescue]]
    return group


def _states(
    positions: Array, county_of: Index, edges: Index, counties: int, rng: np.random.Generator
) -> Index:
    """The state of every county: the nearest of 16 capitals, then made contiguous."""
    held = np.bincount(county_of, minlength=counties)[:, None]
    sums = np.stack([np.bincount(county_of, positions[:, i], counties) for i in (0, 1)], axis=1)
    centres = sums / held
    capitals = rng.choice(counties, min(STATES, counties), replace=False)
    state = np.asarray(cKDTree(centres[capitals]).query(centres)[1], dtype=np.int64)
    between = np.unique(np.sort(county_of[edges], axis=1), axis=0)
    return _connected(state, between[between[:, 0] != between[:, 1]])


def _in_order(
    positions: Array, county_of: Index, state_of: Index, cells: tuple[Array, Index]
) -> tuple[Array, Index, Index, tuple[Array, Index]]:
    """Number states, counties and communities from north to south within their parent."""
    counties, states = len(state_of), int(state_of.max()) + 1
    north = np.bincount(county_of, positions[:, 1], counties) / np.bincount(county_of)
    state_north = np.bincount(state_of, north, states) / np.bincount(state_of)
    state_rank = np.argsort(np.argsort(-state_north))
    new_state = state_rank[state_of]
    county_order = np.lexsort((-north, new_state))
    county_rank = np.argsort(county_order)
    new_county = county_rank[county_of]
    order = np.lexsort((-positions[:, 1], new_county))
    rank = np.argsort(order)
    vertices, cell_of = cells
    by_cell = np.argsort(rank[cell_of], kind="stable")
    return (
        positions[order],
        new_county[order],
        new_state[county_order],
        (vertices[by_cell], rank[cell_of][by_cell]),
    )


def _populations(county_of: Index, counties: int, rng: np.random.Generator) -> Index:
    held = np.bincount(county_of)
    county = _county_populations(held, rng)
    z = rng.normal(size=len(county_of))
    first = np.searchsorted(county_of, np.arange(counties))
    spare = county - SMALLEST_COMMUNITY * held

    def sizes(spread: float) -> Array:
        weight = np.exp(spread * z)
        return np.asarray(spare[county_of] * weight / np.add.reduceat(weight, first)[county_of])

    goal = COMMUNITY_MEDIAN_PER_MEAN * county.sum() / len(county_of)
    spread = _solve(lambda s: float(np.median(sizes(s))) - goal, 0.3, 2.5)
    share = sizes(spread)
    whole = np.floor(share).astype(np.int64)
    order = np.lexsort((whole - share, county_of))
    rank = np.arange(len(order)) - first[county_of]
    short = spare - np.add.reduceat(whole, first)
    whole[order] += rank < short[county_of]
    return SMALLEST_COMMUNITY + whole


def _county_populations(held: Index, rng: np.random.Generator) -> Index:
    """County populations: log-normal around the paper's median and mean, with one giant."""
    counties = len(held)
    # Stratified draws: the median and the mean then hardly depend on the seed.
    quantile = (np.arange(counties) + rng.uniform(0.25, 0.75, counties)) / counties
    z = ndtri(quantile)
    giant = LARGEST_COUNTY * min(1.0, counties / 400)

    def sizes(spread: float) -> Array:
        drawn = COUNTY_MEDIAN * np.exp(spread * z)
        drawn[-1] = max(drawn[-1], giant)
        return np.asarray(drawn)

    spread = _solve(lambda s: float(sizes(s).mean()) - COUNTY_MEAN, 0.1, 1.5)
    drawn = np.maximum(np.round(sizes(spread)).astype(np.int64), 20 * SMALLEST_COMMUNITY)
    giants_home = int(rng.choice(np.flatnonzero(held == held.min())))
    others = rng.permutation(np.delete(np.arange(counties), giants_home))
    population = np.empty(counties, dtype=np.int64)
    population[giants_home] = drawn[-1]
    population[others] = drawn[:-1]
    return np.maximum(population, 2 * SMALLEST_COMMUNITY * held)


def _solve(function: Callable[[float], float], low: float, high: float) -> float:
    """The root, or the nearer end of the interval where a small country has none."""
    at_low, at_high = function(low), function(high)
    if at_low * at_high > 0:
        return low if abs(at_low) < abs(at_high) else high
    return float(brentq(function, low, high, xtol=1e-6))


def _county_names(
    names: tuple[str, ...], population: Index, county_of: Index, counties: int
) -> tuple[str, ...]:
    """County names, each after the county's largest community."""
    order = np.lexsort((population, county_of))
    last = np.searchsorted(county_of, np.arange(counties), side="right") - 1
    held = np.bincount(county_of)
    return tuple(
        f"{'SK' if held[county] == 1 else 'LK'} {names[order[last[county]]]}"
        for county in range(counties)
    )
