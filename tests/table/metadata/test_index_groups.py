"""Names of the file groups of a record index by partition, as Hudi 1.2.0 makes and reads them."""

from __future__ import annotations

import pytest

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import log_file_name, parse_log_file_name
from tagstream.table.metadata.record_index import IndexGroups, index_group_name

# HoodieTableMetadataUtil.getFileIDForFileGroup of Hudi 1.2.0 gave these, and its getDataTablePartitionNameFromFileGroupName
# the partitions again.
OF_HUDI = {
    "": "record-index--0012-0",
    "a_b": "record-index-a%5Fb-0012-0",
    "2024-01-01": "record-index-2024%2D01%2D01-0012-0",
    "part=p 1": "record-index-part%3Dp 1-0012-0",
    "p/sub dir": "record-index-p%2Fsub dir-0012-0",
    "__HIVE_DEFAULT_PARTITION__": "record-index-%5F%5FHIVE%5FDEFAULT%5FPARTITION%5F%5F-0012-0",
    "a%41b": "record-index-a%2541b-0012-0",
    "é-x": "record-index-é%2Dx-0012-0",
    "\"#'*:?[]^{}!&+,;<>@|~": "record-index-%22%23%27%2A%3A%3F%5B%5D%5E%7B}!&+,;<>@|~-0012-0",
}


def slice_of(file_id: str) -> FileSlice:
    return FileSlice("record_index", file_id, "1", None)


@pytest.mark.parametrize("partition", [*OF_HUDI, "a.b", "v1.2-x_y/z.0", "日本"])
def test_names(partition: str) -> None:
    name = index_group_name(partition, 12)
    assert name == OF_HUDI.get(partition, name)
    assert name.count("-") == 4, "by which Hudi knows the form"
    parsed = parse_log_file_name(log_file_name(name, "20240101000000000", 1, "0-0-0"))
    assert parsed is not None
    assert parsed.file_id == name
    slices = [slice_of(index_group_name(partition, number)) for number in (1, 0)]
    found = IndexGroups.of(slices, "here", is_partitioned=True)
    assert found.by_partition == {partition: (slices[1], slices[0])}


def test_a_path_that_no_file_could_name_is_an_error() -> None:
    with pytest.raises(UnsupportedTableError, match="too long for a record index by partition"):
        index_group_name("_" * 70, 0)
