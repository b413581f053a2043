"""Thirty models in their size bins; a polyp in the wall measures what its label says, and the wall stays closed."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from polypscope.records.errors import UsageError
from polypscope.simulator.colon import Colon
from polypscope.simulator.polyps import MODELS, PARIS_CLASSES, PolypModel, sample_model, sew_polyp
from polypscope.simulator.surface import open_edges, vertex_normals


@pytest.fixture(scope="module")
def wall():
    stretch = Colon(11).stretch(900, 1010, 60_000)
    return stretch, vertex_normals(stretch.surface.vertices, stretch.surface.faces)


def grow_somewhere(wall, model, seed=0):
    stretch, normals = wall
    rng = np.random.default_rng(seed)
    for _ in range(200):
        spot = int(rng.choice(stretch.places[str(rng.choice(["wall", "fold", "bend"]))]))
        sewn = sew_polyp(stretch.surface, normals, model, spot, 1, stretch.edge_mm)
        if sewn is not None:
            return sewn
    raise AssertionError(f"no place for {model}")


def test_the_thirty_models_match_the_published_bins():
    sizes = np.array([m.size_mm for m in MODELS])
    assert len(MODELS) == 30
    assert (sizes.min(), sizes.max()) == (1.79, 20.52)
    assert [(sizes < 10).sum(), ((sizes >= 10) & (sizes <= 20)).sum(), (sizes > 20).sum()] == [15, 13, 2]
    assert {m.paris for m in MODELS} == set(PARIS_CLASSES)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m.name} {m.paris} {m.size_mm}")
def test_size_on_the_mesh_is_the_label_and_nothing_gapes(wall, model):
    surface, apex = grow_somewhere(wall, model)
    # Independent of the simulator's own measure: every pair of polyp vertices.
    assert pdist(surface.label_vertices(1)).max() == pytest.approx(model.size_mm, abs=0.01)
    assert len(open_edges(surface.faces)) == 0
    assert np.linalg.norm(surface.vertices[surface.faces.max()] - apex) < 1e-9
    # One piece: from any wall vertex one can walk to every polyp vertex.
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    f = surface.faces
    edges = np.concatenate([f[:, [0, 1]], f[:, [1, 2]]])
    graph = coo_matrix((np.ones(len(edges)), edges.T), shape=(len(surface.vertices),) * 2)
    _, part = connected_components(graph, directed=False)
    assert len(np.unique(part[np.unique(f)])) == 1


def test_sampled_polyps_stay_in_range_and_differ():
    rng = np.random.default_rng(1)
    models = [sample_model(rng) for _ in range(200)]
    assert all(1.79 <= m.size_mm <= 20.52 for m in models)
    assert len({m.seed for m in models}) == 200
    assert not any(m.paris in ("0-Ip", "0-Isp") for m in models if m.size_mm < 4)


@pytest.mark.parametrize(("paris", "size"), [("0-III", 5.0), ("0-Is", 0.2), ("0-Is", 90.0), ("0-Is", -3.0)])
def test_impossible_polyps_are_refused(paris, size):
    with pytest.raises(UsageError, match="expected"):
        PolypModel("x", paris, size, 0)
