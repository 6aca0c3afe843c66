"""Charts are well-formed drawings of numbers alone."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tagstream.streaming.monitor.templates import HEIGHT, WIDTH, bar, stacks, trend

HOSTILE = '"><script>alert(1)</script>'


def shapes(text: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter())


def test_a_trend() -> None:
    drawing, area, line = shapes(trend([(0, 0), (5, 10), (10, 5)], HOSTILE))
    assert drawing.attrib["aria-label"] == HOSTILE
    assert line.attrib["d"] == f"M0.0 {HEIGHT} L300.0 2.0 L{WIDTH} 51.0"
    assert area.attrib["class"] == "area"
    assert trend([(0, 1)], "one point") == ""


@pytest.mark.parametrize("points", [[(0, 0), (0, 0)], [(5, 0), (9, 0)], [(1, 10**18), (2, 10**18)]])
def test_flat_trends(points: list[tuple[float, float]]) -> None:
    assert "nan" not in trend(points, "flat").lower()


def test_stacks() -> None:
    _, *rects = shapes(stacks([[1.0, 3.0], [0.0, 2.0]], "phases"))
    assert [r.attrib["class"] for r in rects] == ["s0", "s1", "s1"]
    assert [float(r.attrib["height"]) for r in rects] == [24.5, 73.5, 49.0]
    assert float(rects[1].attrib["y"]) == 2.0
    assert shapes(stacks([[0.0, 0.0]], "nothing"))[1:] == []
    assert stacks([], "none") == ""


@pytest.mark.parametrize(("share", "width"), [(0.0, "0.0%"), (0.5, "50.0%"), (7.0, "100.0%"), (-1.0, "0.0%")])
def test_a_bar(share: float, width: str) -> None:
    assert shapes(bar(share))[2].attrib["width"] == width
