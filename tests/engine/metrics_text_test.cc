// SPDX-License-Identifier: Apache-2.0
//
// Property: the text for Prometheus is well formed and says what the metrics say; an alarm is
// raised beyond its limit, with enough samples, and not before; docs and shipped rules name exactly
// the existing metrics. Method: metrics made by hand, no store; the files of docs/ are read and
// compared; promtool, where it is installed, judges text and rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/core/histogram.h"
#include "cairn/metrics.h"
#include "engine/metrics/catalog.h"
#include "engine/metrics/constants.h"
#include "tests/support/source_dir.h"
#include "tests/support/test_store.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMs = 1'000'000;

std::string ReadDocs(const std::string& name) {
  std::ifstream file(testing::SourcePath("/docs/" + name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Every field has another value.
StoreMetrics Distinct() {
  StoreMetrics metrics;
  uint64_t value = 1000;
  for (const engine::Metric& metric : engine::Metrics()) metrics.*metric.value = ++value;
  return metrics;
}

LatencyHistogram Latencies(uint64_t count, uint64_t ns) {
  Histogram histogram;
  for (uint64_t i = 0; i < count; ++i) histogram.Add(ns);
  return histogram.Snapshot();
}

// The values in the lines of `text`, "name{labels}" -> value; checks their form and order.
struct Parsed {
  std::map<std::string, std::string> types;  // By family.
  std::map<std::string, std::string> samples;
};

Parsed Parse(const std::string& text) {
  static const std::regex kSample(R"re(([a-z_]+)(\{[a-z]+="([^"\\\n]|\\["\\n])*")re"
                                  R"re((,[a-z]+="([^"\\\n]|\\["\\n])*")*\})? ([0-9.]+))re");
  Parsed parsed;
  std::string family, type;
  EXPECT_TRUE(text.ends_with('\n'));
  const std::vector<std::string> lines = Lines(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("# HELP ")) {
      std::istringstream help(lines[i].substr(7));
      std::string words;
      help >> family;
      std::getline(help, words);
      EXPECT_GT(words.size(), 5u) << lines[i];
      const std::string want = "# TYPE " + family + " ";
      if (i + 1 == lines.size() || !lines[i + 1].starts_with(want)) {
        ADD_FAILURE() << "no type behind " << lines[i];
        break;
      }
      type = lines[++i].substr(want.size());
      EXPECT_TRUE(parsed.types.emplace(family, type).second) << family << " comes twice";
      continue;
    }
    std::smatch match;
    if (!std::regex_match(lines[i], match, kSample)) {
      ADD_FAILURE() << "neither help nor sample: " << lines[i];
      continue;
    }
    const std::string name = match[1];
    if (type == "histogram") {
      EXPECT_TRUE(name == family + "_bucket" || name == family + "_sum" ||
                  name == family + "_count")
          << lines[i];
    } else {
      EXPECT_EQ(name, family) << lines[i];
      EXPECT_EQ(name.ends_with("_total"), type == "counter") << name;
    }
    EXPECT_TRUE(parsed.samples.emplace(name + match[2].str(), match[6]).second) << lines[i];
  }
  return parsed;
}

TEST(PrometheusText, HasEveryNumberOnceUnderItsName) {
  const StoreMetrics metrics = Distinct();
  const Parsed parsed = Parse(PrometheusText(metrics));
  std::set<std::string> fields;
  for (const engine::Metric& metric : engine::Metrics()) {
    EXPECT_TRUE(fields.insert(std::string(metric.field)).second) << metric.field;
    const std::string name = std::string(metric.family) +
                             (metric.label.empty() ? "" : "{" + std::string(metric.label) + "}");
    ASSERT_TRUE(parsed.samples.contains(name)) << name;
    if (metric.type == engine::MetricType::kGaugeNs) continue;  // In seconds, below.
    EXPECT_EQ(parsed.samples.at(name), std::to_string(metrics.*metric.value));
  }
  EXPECT_EQ(parsed.samples.at("cairn_log_pinned_seconds"),
            "0." + std::string(9 - std::to_string(metrics.log_pinned_ns).size(), '0') +
                std::to_string(metrics.log_pinned_ns));
  EXPECT_EQ(parsed.samples.at("cairn_stalls_total{cause=\"segment_late\"}"),
            std::to_string(metrics.stalls_segment_late));
  EXPECT_EQ(parsed.types.at("cairn_branches"), "gauge");
  EXPECT_EQ(parsed.types.at("cairn_save_seconds"), "histogram");
}

TEST(PrometheusText, HistogramsAreCumulativeInSecondsWithExactEdges) {
  Histogram histogram;
  const std::vector<uint64_t> values = {
      0, 1023, 1024, 50'331'647, 50'331'648, 1000, 100'663'296, 2'000'000'000, uint64_t{1} << 40};
  for (const uint64_t ns : values) histogram.Add(ns);
  StoreMetrics metrics;
  metrics.save = histogram.Snapshot();
  const std::string text = PrometheusText(metrics);
  uint64_t buckets = 0, before = 0;
  for (const std::string& line : Lines(text)) {
    const std::string prefix = "cairn_save_seconds_bucket{le=\"";
    if (!line.starts_with(prefix)) continue;
    const std::string edge =
        line.substr(prefix.size(), line.find('"', prefix.size()) - prefix.size());
    const uint64_t count = std::stoull(line.substr(line.rfind(' ') + 1));
    if (edge != "+Inf") {
      // "S.nnnnnnnnn" without its point is nanoseconds.
      std::string digits = edge;
      digits.erase(digits.find('.'), 1);
      const uint64_t ns = std::stoull(digits);
      EXPECT_EQ(count, static_cast<uint64_t>(std::ranges::count_if(
                           values, [&](uint64_t value) { return value <= ns; })))
          << line;
    }
    EXPECT_GE(count, before);
    before = count;
    ++buckets;
  }
  EXPECT_EQ(buckets, 52u);
  const Parsed parsed = Parse(text);
  EXPECT_EQ(parsed.samples.at("cairn_save_seconds_bucket{le=\"+Inf\"}"), "9");
  EXPECT_EQ(parsed.samples.at("cairn_save_seconds_count"), "9");
  EXPECT_EQ(parsed.samples.at("cairn_save_seconds_sum"), "1101.712957414") << "of all values";
  EXPECT_EQ(parsed.samples.at("cairn_restore_seconds_count"), "0");
}

TEST(PrometheusText, ALabelIsEscapedAndOnEverySample) {
  const std::string text = PrometheusText(Distinct(), "a\"b\\c\nd");
  for (const auto& [sample, value] : Parse(text).samples) {
    EXPECT_THAT(sample, HasSubstr("{store=\"a\\\"b\\\\c\\nd\"")) << value;
  }
  EXPECT_THAT(text, HasSubstr("cairn_log_sequence{store=\"a\\\"b\\\\c\\nd\",stage=\"durable\"} "));
  EXPECT_EQ(PrometheusText({}).find("store="), std::string::npos);
}

// --- Health

std::vector<std::string> AlarmsOf(const StoreMetrics& metrics) {
  const Health health = CheckHealth(metrics);
  std::vector<std::string> names;
  for (const Alarm& alarm : health.alarms) {
    names.push_back(alarm.name);
    EXPECT_FALSE(alarm.message.empty());
    EXPECT_EQ(alarm.message.find('\n'), std::string::npos);
  }
  EXPECT_EQ(health.ok, names.empty());
  return names;
}

TEST(Health, NothingHappenedIsHealthy) { EXPECT_THAT(AlarmsOf({}), ElementsAre()); }

TEST(Health, SlowSavesAndRestores) {
  for (const auto& [field, name, limit_ms] :
       {std::tuple{&StoreMetrics::save, "save_p95", uint64_t{50}},
        std::tuple{&StoreMetrics::restore, "restore_p95", uint64_t{100}}}) {
    StoreMetrics metrics;
    metrics.*field = Latencies(100, limit_ms * kMs);
    EXPECT_THAT(AlarmsOf(metrics), ElementsAre()) << "the limit itself";
    metrics.*field = Latencies(99, 2 * limit_ms * kMs);
    EXPECT_THAT(AlarmsOf(metrics), ElementsAre()) << "too few";
    metrics.*field = Latencies(100, 2 * limit_ms * kMs);
    EXPECT_THAT(AlarmsOf(metrics), ElementsAre(name));
    const Alarm alarm = CheckHealth(metrics).alarms[0];
    EXPECT_NEAR(alarm.value, 2e-3 * static_cast<double>(limit_ms), 1e-9);
    EXPECT_DOUBLE_EQ(alarm.limit, 1e-3 * static_cast<double>(limit_ms));
  }
  // One in a hundred may be slow.
  Histogram histogram;
  for (uint64_t i = 0; i < 100; ++i) histogram.Add(i == 0 ? 1000 * kMs : kMs);
  StoreMetrics metrics;
  metrics.save = histogram.Snapshot();
  EXPECT_THAT(AlarmsOf(metrics), ElementsAre());
}

TEST(Health, StoredRatioOutOfItsBand) {
  constexpr uint64_t kGiB = 1 << 30;
  StoreMetrics metrics;
  const auto with = [&](uint64_t raw, uint64_t stored) {
    metrics.raw_bytes = raw;
    metrics.stored_bytes = stored;
    return AlarmsOf(metrics);
  };
  EXPECT_THAT(with(kGiB, kGiB), ElementsAre());
  EXPECT_THAT(with(kGiB, 4 * kGiB), ElementsAre());
  EXPECT_THAT(with(kGiB, 4 * kGiB + (1 << 20)), ElementsAre("stored_ratio"));
  EXPECT_DOUBLE_EQ(CheckHealth(metrics).alarms[0].limit, 4.0);
  EXPECT_THAT(with(kGiB - 1, 100 * kGiB), ElementsAre());
  EXPECT_THAT(with(kGiB, kGiB / 11), ElementsAre("stored_ratio"));
  EXPECT_DOUBLE_EQ(CheckHealth(metrics).alarms[0].limit, 0.1);
}

TEST(Health, LongChains) {
  StoreMetrics metrics;
  const auto with = [&](uint64_t lanes, uint64_t deltas) {
    metrics.chain_lanes = lanes;
    metrics.chain_deltas = deltas;
    return AlarmsOf(metrics);
  };
  EXPECT_THAT(with(10, 1000), ElementsAre());
  EXPECT_THAT(with(10, 1001), ElementsAre("mean_chain"));
  EXPECT_DOUBLE_EQ(CheckHealth(metrics).alarms[0].value, 100.1);
  EXPECT_THAT(with(9, 9000), ElementsAre());
}

TEST(Health, FailedRestoresOfEveryCauseButTheCallersOwn) {
  for (uint64_t StoreMetrics::*const cause :
       {&StoreMetrics::restores_failed_corruption, &StoreMetrics::restores_failed_io,
        &StoreMetrics::restores_failed_memory, &StoreMetrics::restores_failed_deadline,
        &StoreMetrics::restores_failed_other}) {
    StoreMetrics metrics;
    metrics.*cause = 1;
    metrics.restores = 98;
    EXPECT_THAT(AlarmsOf(metrics), ElementsAre()) << "too few";
    metrics.restores = 99;
    EXPECT_THAT(AlarmsOf(metrics), ElementsAre("restore_success"));
    EXPECT_DOUBLE_EQ(CheckHealth(metrics).alarms[0].value, 0.99);
    metrics.restores = 9999;
    EXPECT_THAT(AlarmsOf(metrics), ElementsAre()) << "one in ten thousand is allowed";
  }
  StoreMetrics metrics;
  metrics.restores = 1;
  metrics.restores_failed_cancelled = 1000;
  EXPECT_THAT(AlarmsOf(metrics), ElementsAre());
}

TEST(Health, PoisonAndAFailingBackgroundNeedNoSamples) {
  StoreMetrics metrics;
  metrics.poisoned = 1;
  EXPECT_THAT(AlarmsOf(metrics), ElementsAre("poisoned"));
  metrics.background_failing = 1;
  EXPECT_THAT(AlarmsOf(metrics), ElementsAre("poisoned", "background"));
}

TEST(Health, NamesWhatPinsTheLog) {
  StoreMetrics metrics;
  metrics.log_pinned_ns = 60'000'000'000;
  metrics.log_pinned_segment = 3;
  metrics.log_pinned_by = 3;
  EXPECT_THAT(AlarmsOf(metrics), ElementsAre());
  metrics.log_pinned_ns = 61'000'000'000;
  EXPECT_THAT(AlarmsOf(metrics), ElementsAre("log_pinned"));
  EXPECT_THAT(CheckHealth(metrics).alarms[0].message,
              HasSubstr("a large append has needed segment 3 of the log for 61 s"));
  metrics.log_pinned_by = 2;
  metrics.log_pinned_id = 9;
  EXPECT_THAT(CheckHealth(metrics).alarms[0].message, HasSubstr("a read of node 9 has"));
}

// --- Docs and rules

struct Documented {
  std::string type, field;
  auto operator<=>(const Documented&) const = default;
};

TEST(MetricsDocs, TableAndCodeAgree) {
  std::map<std::string, Documented> coded;
  for (const engine::Metric& metric : engine::Metrics()) {
    const bool counter = metric.type == engine::MetricType::kCounter;
    coded[std::string(metric.family) +
          (metric.label.empty() ? "" : "{" + std::string(metric.label) + "}")] = {
        counter ? "counter" : "gauge", std::string(metric.field)};
  }
  for (const engine::HistogramMetric& metric : engine::HistogramMetrics()) {
    coded[std::string(metric.family)] = {"histogram", std::string(metric.field)};
  }
  static const std::regex kRow(R"(\| `(cairn_[^`]*)` \| (\w+) \| [\w ]+ \| `(\w+)` \| .{5,} \|)");
  std::map<std::string, Documented> documented;
  for (const std::string& line : Lines(ReadDocs("metrics.md"))) {
    if (!line.starts_with("| `cairn_")) continue;
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, kRow)) << line;
    EXPECT_TRUE(documented.emplace(match[1], Documented{match[2], match[3]}).second) << line;
  }
  for (const auto& [name, row] : coded) {
    ASSERT_TRUE(documented.contains(name)) << name << " is not in docs/metrics.md";
    EXPECT_EQ(documented[name], row) << name;
  }
  for (const auto& [name, row] : documented) {
    EXPECT_TRUE(coded.contains(name)) << name << " is documented and does not exist";
  }
}

// The shortest decimal, as a person would write it.
std::string Text(double value) {
  std::ostringstream out;
  out << std::setprecision(12) << value;
  return out.str();
}

// The expression of the alert, spaces and line ends as one space.
std::string Expression(const std::string& alert) {
  const std::string rules = ReadDocs("prometheus/cairn.rules.yml");
  const size_t begin = rules.find("- alert: " + alert + "\n");
  if (begin == std::string::npos) return "";
  const size_t expr = rules.find("expr: ", begin);
  const std::string text = rules.substr(expr, rules.find("labels:", begin) - expr);
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

TEST(MetricsDocs, RulesHaveTheLimitsOfHealth) {
  using namespace engine;
  EXPECT_THAT(Expression("CairnPoisoned"), HasSubstr("cairn_poisoned > 0"));
  EXPECT_THAT(Expression("CairnBackgroundFails"), HasSubstr("cairn_background_failing > 0"));
  const std::string samples = " >= " + std::to_string(kMinLatencySamples) + " ";
  const std::string save = Expression("CairnSaveSlow");
  EXPECT_THAT(save, HasSubstr("(0.95, rate(cairn_save_seconds_bucket"));
  EXPECT_THAT(save, HasSubstr(" > " + Text(kSaveP95LimitSeconds) + " and"));
  EXPECT_THAT(save, HasSubstr(samples));
  const std::string restore = Expression("CairnRestoreSlow");
  EXPECT_THAT(restore, HasSubstr("(0.95, rate(cairn_restore_seconds_bucket"));
  EXPECT_THAT(restore, HasSubstr(" > " + Text(kRestoreP95LimitSeconds) + " and"));
  EXPECT_THAT(restore, HasSubstr(samples));
  const std::string ratio = Expression("CairnStoredRatio");
  EXPECT_THAT(ratio, HasSubstr("cairn_raw_bytes > " + Text(kStoredRatioMax) + " or"));
  EXPECT_THAT(ratio, HasSubstr("cairn_raw_bytes < " + Text(kStoredRatioMin) + ")"));
  EXPECT_THAT(ratio, HasSubstr("cairn_raw_bytes >= " + std::to_string(kMinRatioRawBytes) + " "));
  const std::string chain = Expression("CairnLongChains");
  EXPECT_THAT(chain, HasSubstr("cairn_chain_lanes > " + Text(kMeanChainLimit) + " and"));
  EXPECT_THAT(chain, HasSubstr("cairn_chain_lanes >= " + std::to_string(kMinChainLanes) + " "));
  EXPECT_THAT(Expression("CairnLogPinned"),
              HasSubstr("cairn_log_pinned_seconds > " + Text(kLogPinnedLimitSeconds)));
  const std::string fail = Expression("CairnRestoresFail");
  EXPECT_THAT(fail, HasSubstr(" < " + Text(kRestoreSuccessLimit) + " and"));
  EXPECT_THAT(fail, HasSubstr(" >= " + std::to_string(kMinRestores) + " "));
}

TEST(MetricsDocs, RulesAndProseNameOnlyWhatExists) {
  const Parsed parsed = Parse(PrometheusText({}));
  std::set<std::string> names;
  for (const auto& [sample, value] : parsed.samples)
    names.insert(sample.substr(0, sample.find('{')));
  for (const auto& [family, type] : parsed.types) names.insert(family);
  const std::regex name_form("cairn_[a-z_0-9]+");
  for (const char* file : {"metrics.md", "prometheus/cairn.rules.yml"}) {
    const std::string text = ReadDocs(file);
    std::sregex_iterator it(text.begin(), text.end(), name_form);
    ASSERT_NE(it, std::sregex_iterator()) << file;
    for (; it != std::sregex_iterator(); ++it) {
      EXPECT_TRUE(names.contains(it->str())) << it->str() << " in docs/" << file;
    }
  }
}

TEST(MetricsDocs, PromtoolAcceptsTextAndRules) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool (Debian package prometheus) is not installed";
  }
  const testing::TempDirectory directory;
  const std::string text = directory.path() + "/metrics.txt";
  StoreMetrics metrics = Distinct();
  metrics.save = Latencies(10, 50 * kMs);
  std::ofstream(text) << PrometheusText(metrics, "a \"store\"");
  EXPECT_EQ(std::system(("promtool check metrics < " + text).c_str()), 0);
  const std::string rules = testing::SourcePath("/docs/prometheus/cairn.rules.yml");
  EXPECT_EQ(std::system(("promtool check rules " + rules).c_str()), 0);
  const std::string unit = testing::SourcePath("/tests/engine/cairn.rules.test.yml");
  EXPECT_EQ(std::system(("promtool test rules " + unit).c_str()), 0);
}

}  // namespace
}  // namespace cairn
