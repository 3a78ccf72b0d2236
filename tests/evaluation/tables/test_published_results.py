"""The paper's table 4 from its tables 8 to 13, by its averaging rules."""

import pytest

from babelcap.evaluation.tables.published_results import Key, printed_table4, published_results, table4_means

# Printed in table 4, but with no source in tables 8 to 13: of other papers, by construction, or left out of table 13.
NO_SOURCE = {
    ("VGAMT", "commute de accuracy"),
    ("ZeroMMT-3.3B", "commute de accuracy"),
    ("ZeroMMT-3.3B", "commute X accuracy"),
    ("NLLB-3.3B", "commute de accuracy"),
    ("NLLB-3.3B", "commute X accuracy"),
    ("F-11.2B 30K ft", "xm3600 en CIDEr"),
    ("F-11.2B 30K ft", "xm3600 de CIDEr"),
    ("F-11.2B 30K ft", "xm3600 unseen CIDEr"),
    *((f"F-{size}", "xm3600 unseen CIDEr") for size in ("0.4B", "0.4B 100K", "1.0B", "3.5B", "11.2B", "11.2B 30K")),
}


def test_table_4_follows_from_tables_8_to_13() -> None:
    means, printed = table4_means(published_results()), printed_table4()
    compared = 0
    for system, row in printed.items():
        for column, value in row.items():
            if (system, column) in NO_SOURCE:
                assert column not in means.get(system, {})
                continue
            assert means[system][column] == pytest.approx(value, abs=0.1), (system, column)
            compared += 1
    assert compared == 136


def test_the_rules_of_averaging() -> None:
    results = published_results()
    assert results[Key("F-1.0B ft", "multi30k-test_2018_flickr", "de", "BLEU")] == 35.7
    row = table4_means(results)["F-1.0B ft"]
    assert row["multi30k de BLEU"] == pytest.approx((43.2 + 38.7 + 33.3) / 3)
    assert row["commute X BLEU"] == pytest.approx((29.0 + 30.5 + 12.0 + 19.5) / 4)
    assert row["xm3600 unseen CIDEr"] == pytest.approx((64.6 + 59.6 + 30.3 + 24.2) / 4)


def test_nothing_is_averaged_over_a_part() -> None:
    results = {key: value for key, value in published_results().items() if key.language != "zh"}
    row = table4_means(results)["F-1.0B ft"]
    assert "commute X BLEU" not in row
    assert "commute de BLEU" in row
