# SPDX-License-Identifier: Apache-2.0
"""Shows that tools/bench/report writes the tables of the files, keeps the output of programs, and fails on anything else."""

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

REPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/bench/report")
LOADER = importlib.machinery.SourceFileLoader("report", REPORT)
report = importlib.util.module_from_spec(importlib.util.spec_from_loader("report", LOADER))
LOADER.exec_module(report)

MACHINE = {"cpu": "a processor", "cores": 2, "kernel": "Linux 1"}


def run_of(**more):
    return {"command": "a program", "commit": "abc", "date": "2026-01-01", "machine": MACHINE, **more}


def load_run(rate):
    values = {f"cairn_{key}": 2000.0 for key in ("gb_per_s", "p50_us", "p99_us", "longest_us", "cpu_s_per_gb",
                                                 "faults_per_gb", "device_per_byte")}
    values.update({"rate_to_raw_min": 0.4, "rate_to_raw_max": 0.6, "p50_to_raw_min": 1.5, "p50_to_raw_max": 1.5})
    return run_of(values=values, ratios={"rate_to_raw": rate, "rate_to_raw_fresh": 1.0, "p50_to_raw": 1.5})


def ingest_run():
    store = ("gb_per_s", "settled_gb_per_s", "cpu_s_per_gb_above_raw", "faults_per_gb", "device_per_byte", "packed_ratio")
    to_raw = ("to_raw_fresh", "to_raw_used", "settled_to_raw_fresh", "p50_to_raw_fresh", "p99_to_raw_fresh")
    alone = ("gb_per_s", "gb_per_cpu_s", "settled_gb_per_s", "settled_gb_per_cpu_s", "written_per_byte")
    cells = ("128m_1t", "2m_8t", "512k_1t")
    values = {f"{cell}_model_{key}": 0.25 for cell in cells for key in store}
    values.update({f"{cell}_raw_fresh_gb_per_s": 2.0 for cell in cells})
    values.update({f"2m_model_no_disk_1t_{key}": 4.0 for key in alone})
    run = run_of(values=values, ratios={f"{cell}_model_{key}": 0.5 for cell in cells for key in to_raw})
    return {**run, "machine": {**MACHINE, "codec_path": "scalar"}}


class Report(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        os.makedirs(os.path.join(self.root, "docs/bench"))
        for page in report.PAGES:
            self.write(page, f"before\n{report.BEGIN}\n{report.END}\nafter\n")

    def write(self, path, text):
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def keep(self, file, runs):
        self.write(f"docs/bench/{file}.json", json.dumps(runs))

    def call(self, *arguments):
        """Exit status and standard output."""
        result = subprocess.run([sys.executable, REPORT, "--root", self.root, *arguments], text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout

    def test_the_arms_of_ingest_stand_by_size_and_an_absent_one_is_empty(self):
        self.keep("ingest", {"ingest": ingest_run()})
        self.assertEqual(self.call()[0], 0)
        rows = [line for line in self.read("docs/bench.md").splitlines() if line.startswith("| `")]
        self.assertEqual([row.split("`")[1] for row in rows],
                         ["512k_1t_model", "2m_8t_model", "128m_1t_model", "512k_1t", "2m_8t", "128m_1t",
                          "2m_model_no_disk_1t"])
        self.assertEqual(rows[3], "| `512k_1t` |  | 2.00 |  |  | 0.250 |")

    def test_writes_tables_between_the_lines_alone(self):
        self.keep("load", {"burst": load_run(0.5)})
        self.assertEqual(self.call("--check")[0], 1)
        self.assertEqual(self.call()[0], 0)
        self.assertEqual(self.call("--check"), (0, ""))
        page = self.read("docs/bench.md")
        self.assertTrue(page.startswith("before\n") and page.endswith(f"{report.END}\nafter\n"))
        self.assertIn("| load burst | `rate_to_raw` | 0.500 | 0.400 to 0.600 | >= 0.70 | missed |", page)
        self.assertIn("commit abc; 2026-01-01; 2 cores of a processor; Linux 1.", page)

    def test_parts_show_the_figures_that_are_listed(self):
        run = run_of(values={"fork_us": 1.5, "fork_bytes": 300, "tokens": 9}, ratios={"p50_to_short": 1.0})
        self.keep("parts", {"fork": run})
        self.assertEqual(self.call()[0], 0)
        page = self.read("docs/bench.md")
        self.assertIn("| fork | `fork_us` | 1.50 |  | <= 20 | met |", page)
        self.assertIn("| fork | `fork_bytes` | 300 |  | <= 256 | missed |", page)
        self.assertNotIn("p50_to_short", page)

    def test_engines_have_tables_of_their_own(self):
        operations = {"store": 2.0, "lookup": 0.25}
        self.keep("lmcache", {"lmcache": run_of(values={"ms": {"fs": operations, "cairn": operations},
                                                        "cpu_s_per_gb": {"fs": {"store": 1.5}, "cairn": {"store": 1.0}},
                                                        "repeats": 5}, ratios={"cairn": {"store": 1.0, "lookup": 0.5}})})
        arm = {"first_ms": 12.5, "first_ms_min": 12.0, "first_ms_max": 13.0, "cached_tokens": 960, "ready_s": 9.0,
               "file_bytes": 30_000_000}
        arms = dict.fromkeys(("cairn", "lmcache fs", "recompute"), arm)
        self.keep("ttft", {"ttft": run_of(values={"prompt_tokens": 984, "repeats": 3, "arms": arms}, ratios={})})
        self.assertEqual(self.call()[0], 0)
        page = self.read("docs/bench.md")
        self.assertIn("| the faster of theirs to cairn | 1.00 | 0.500 |", page)
        self.assertIn("| cairn | 1.00 |", page)
        self.assertIn("| cairn | 12.5 | 12.0 to 13.0 | 960 | 30.0 |", page)
        self.assertIn("first token comes after 12.5 ms with Cairn", self.read("README.md").replace("\n", " "))

    def test_check_names_what_differs_and_writes_nothing(self):
        self.keep("load", {"burst": load_run(0.5)})
        self.call()
        self.keep("load", {"burst": load_run(0.75)})
        before = self.read("docs/bench.md")
        status, output = self.call("--check")
        self.assertEqual(status, 1)
        self.assertIn("+| load burst | `rate_to_raw` | 0.750 | 0.400 to 0.600 | >= 0.70 | met |", output)
        self.assertEqual(self.read("docs/bench.md"), before)

    def test_refuses_files_without_a_table_and_runs_without_an_origin(self):
        self.keep("other", {})
        self.assertIn("other.json: no table is made of it", self.call()[1])
        os.remove(os.path.join(self.root, "docs/bench/other.json"))
        self.keep("load", {"burst": {key: value for key, value in load_run(1.0).items() if key != "commit"}})
        self.assertIn("burst lacks commit", self.call()[1])

    def test_refuses_a_page_without_its_lines(self):
        for page in reversed(report.PAGES):
            self.write(page, "nothing\n")
            status, output = self.call()
            self.assertEqual(status, 1)
            self.assertIn(f"{page} must hold the two lines", output)

    def test_a_run_without_a_range_has_none(self):
        text = report.render({"load": {"burst": load_run(0.5)}})
        self.assertIn("| burst | `rate_to_raw` | 0.500 | 0.400 to 0.600 |", text)
        self.assertIn("| burst | `rate_to_raw_fresh` | 1.00 |  |", text)
        self.assertIn("| burst | `p50_to_raw` | 1.50 |  |", text)

    def test_peers_and_micro(self):
        values = {f"burst{ending}_{engine}": 3.25 for engine in ("cairn", "lmdb")
                  for ending in ("_gb_per_s", "_cpu_s_per_gb", "_faults_per_gb")}
        values.update({"burst_to_best_peer_min": 0.5, "burst_to_best_peer_max": 1500.0, "burst_best_peer": "lmdb",
                       "small_best_peer": "lmdb"})
        peers = run_of(values=values, ratios={"burst_to_best_peer": 1.0, "small_p50_to_best_peer": 0.5})
        micro = run_of(benchmarks=[{"name": "copy", "real_time": 1.5, "cpu_time": 1.25, "time_unit": "us",
                                    "items_per_second": 2e6, "bytes_per_second": 3e9, "faults_per_gb": 0.0}])
        text = report.render({"peers": {"peers": peers}, "micro": {"micro": micro}})
        self.assertIn("| `burst`, GB/s | 3.25 | 3.25 |", text)
        self.assertIn("| `burst_to_best_peer` | 1.00 | 0.500 to 1,500 | lmdb |", text)
        self.assertIn("| `copy` | 1,500 | 1,250 | 2.00 | 3.00 | 0 |", text)
        front = report.render_front({"peers": {"peers": peers}})
        self.assertIn("`a program`: commit abc; 2026-01-01; 2 cores of a processor; Linux 1.", front)
        self.assertIn("| durable appends of 2 MiB, one thread | 1.00 | LMDB |", front)
        self.assertIn("| one durable token of 8 KiB, p50 | 2.00 | LMDB |", front)  # Less is better: turned over.

    def test_records_what_a_program_prints(self):
        subprocess.run(["git", "init", "-q", self.root], check=True)
        subprocess.run(["git", "-C", self.root, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q",
                        "--allow-empty", "-m", "first"], check=True)
        printed = {"bench": "load", **{key: load_run(0.123456789)[key] for key in ("machine", "values", "ratios")}}
        self.write("printed", json.dumps(printed))
        self.keep("load", {"threads": load_run(1.0)})
        printed_at = os.path.join(self.root, "printed")
        status, output = self.call("--note", "alone", "--record", "load/burst", "cat", printed_at)
        self.assertEqual(status, 0, output)
        runs = json.loads(self.read("docs/bench/load.json"))
        self.assertEqual(sorted(runs), ["burst", "threads"])
        self.assertEqual(runs["burst"]["ratios"]["rate_to_raw"], 0.123457)
        self.assertEqual(runs["burst"]["note"], "alone")
        self.assertTrue(report.RUN_KEYS <= runs["burst"].keys() and "bench" not in runs["burst"])
        self.assertEqual(self.call("--check"), (0, ""))
        # A program that does not name its machine ran on this one.
        del printed["machine"]
        self.write("printed", json.dumps(printed))
        self.assertEqual(self.call("--record", "load/burst", "cat", printed_at)[0], 0)
        self.assertTrue(json.loads(self.read("docs/bench/load.json"))["burst"]["machine"]["cores"] > 0)

    def test_keeps_no_paths_and_no_names_of_the_machine(self):
        self.assertEqual(report.command_line(["/a/b/cairn-bench", "peers", "--dir", "/c", "--json", "--dir=/d"]),
                         "cairn-bench peers --json")
        kept = report.trimmed({"context": {"host_name": "h", "executable": "/e", "num_cpus": 2},
                               "benchmarks": [{"name": "n", "real_time": 1.0, "threads": 1}]})
        self.assertEqual(kept, {"machine": {"num_cpus": 2}, "benchmarks": [{"name": "n", "real_time": 1.0}]})

    def test_refuses_other_places(self):
        for arguments in (("--record", "elsewhere/x", "true"), ("--record", "load", "true"), ("--check", "true")):
            self.assertNotEqual(self.call(*arguments)[0], 0, arguments)


if __name__ == "__main__":
    unittest.main()
