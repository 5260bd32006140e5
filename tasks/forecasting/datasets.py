"""The published series: where each comes from, what its columns are, and how it is split.

A file is identified by its content, not by its bytes: ETT is fetched from its authors' repository; Weather, which its
authors share through a cloud drive, from a repository that holds its numbers with one column more.
"""

from dataclasses import dataclass

from tasks.data_sources import Download

ETT = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/1d16c8f4f943005d613b5bc962e9eeb06058cf07/ETT-small"
DEEPFS = "https://raw.githubusercontent.com/songjiang0909/DeepFS/059f5b5f84bb587584cdba262c3351b7d53e67a5/data"

LOADS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
CLIMATE = (
    *("Visibility", "DryBulbFarenheit", "DryBulbCelsius", "WetBulbFarenheit", "DewPointFarenheit", "DewPointCelsius"),
    *("RelativeHumidity", "WindSpeed", "WindDirection", "StationPressure", "Altimeter", "WetBulbCelsius"),
)


@dataclass(frozen=True)
class Dataset:
    """A published series, or a user's own, which has no download. `content_hash` is that of a `Series`.

    `shares`: train, validation and test rows, one after another from the first row; shares of `split_rows`, or of all.
    `ignored`: other columns that a copy may have, None: any. `irregular`: rows may have any time.
    """

    file: str
    columns: tuple[str, ...]
    target: str
    rows: int
    shares: tuple[float, ...]
    minutes: int | None = None  # between two rows; None: as between most rows
    download: Download | None = None
    content_hash: str | None = None
    split_rows: int | None = None
    ignored: tuple[str, ...] | None = ()
    date: str = "date"
    irregular: bool = False


def ett(name: str, size: int, sha256: str, content_hash: str, rows: int, minutes: int) -> Dataset:
    """12, 4 and 4 months of 30 days; the last two and a half months are not used."""
    return Dataset(
        file=f"{name}.csv",
        download=Download(f"{ETT}/{name}.csv", size, sha256),
        content_hash=content_hash,
        columns=LOADS,
        target="OT",
        rows=rows,
        minutes=minutes,
        shares=(0.6, 0.2, 0.2),
        split_rows=20 * 30 * 24 * 60 // minutes,
    )


DATASETS = {
    "etth1": ett(
        "ETTh1",
        2_589_657,
        "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
        "e562b26bc7b251866be15d690854f3a1239a8080472c690872a81377fe3f3379",
        17_420,
        60,
    ),
    "etth2": ett(
        "ETTh2",
        2_417_960,
        "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
        "1b5a5531bcab5c1f3c8544786706456ceea6da7cb9836af7a1651a7003aa3174",
        17_420,
        60,
    ),
    "ettm1": ett(
        "ETTm1",
        10_360_719,
        "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e",
        "04908f155493699caad50768da947e91f542311de6ccee1d3a6d5dbf983a3b94",
        69_680,
        15,
    ),
    "weather": Dataset(
        file="WTH.csv",
        download=Download(
            f"{DEEPFS}/WTH.csv",
            2_308_370,
            "a00aa96b7e73af4fab4e03a790572e78fff037a29eb579a36210a2da6d64032f",
        ),
        content_hash="a38354fe2574dbf666a01cf2b7abcd2350e580175e40670c112df0e008abdf22",
        columns=CLIMATE,
        target="WetBulbCelsius",
        rows=35_064,
        minutes=60,
        shares=(0.7, 0.1, 0.2),
        ignored=("time",),
    ),
}
