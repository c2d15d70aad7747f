// SPDX-License-Identifier: Apache-2.0
//
// Whether keys exist, of --branches small objects: at once after an opening, by the index, and once
// the directory knows all.
#include <unistd.h>

#include <algorithm>

#include "base/core/check.h"
#include "cairn/objects.h"
#include "tools/bench/fixture.h"
#include "tools/bench/object_bench.h"

namespace cairn::bench {

double AskUs(const std::function<bool(std::span<const std::string_view>)>& ask, uint64_t there,
             std::mt19937_64* random) {
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < kAsked; ++i) {
    const uint64_t one = (*random)() % there;
    keys.push_back(KeyAt(i % 2 == 0 ? one : (uint64_t{1} << 50) + one));
  }
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  const double begin = NowUs();
  CAIRN_CHECK(ask(views));
  return NowUs() - begin;
}

Status MeasureExists(const Config& config, const std::string& scratch, Report* report) {
  const std::string path = scratch + "/many";
  Options options;
  options.segment_bytes = config.segment_bytes;
  std::mt19937_64 random(2);
  const uint64_t count = std::max(config.branches, kAsked);
  {
    CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, options, report));
    Objects objects(store);
    CAIRN_ASSIGN_OR_RETURN(const ObjectClassId id,
                           objects.RegisterClass({.name = "small", .page_bytes = 64}));
    const std::vector<std::byte> value(64);
    const double begin = NowUs();
    Progress progress("objects: " + std::to_string(count) + " small ones", 100);
    for (uint64_t first = 0; first < count; first += kAsked) {
      if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
      const auto keys = KeysFrom(first, std::min(kAsked, count - first));
      std::vector<ObjectPut> puts;
      for (const std::string& key : keys) puts.push_back({.key = key, .value = value});
      CAIRN_RETURN_IF_ERROR(
          objects.PutBatch(puts, {.object_class = id, .durability = Durability::kMemory}).status());
      if (first / kAsked % std::max<uint64_t>(1, count / kAsked / 100) == 0) progress.Step();
    }
    report->Value("put_small_us", (NowUs() - begin) / static_cast<double>(count),
                  "an object of 64 bytes at kMemory, 1000 together");
    CAIRN_RETURN_IF_ERROR(store.Close());
  }
  const double opening = NowUs();
  CAIRN_ASSIGN_OR_RETURN(Store store, OpenStore(path, options, report));
  const double opened = NowUs();
  Objects objects(store);
  const auto ask = [&](std::span<const std::string_view> keys) {
    const auto found = objects.Exists(keys);
    return found.ok() && found->count == kAsked / 2;
  };
  const double first_us = AskUs(ask, count, &random);
  while (store.Metrics().object_directory_whole == 0) {
    if (Interrupted()) return Status(StatusCode::kCancelled, "interrupted");
    usleep(1000);
  }
  const double filled = NowUs();
  std::vector<double> us;
  for (int i = 0; i < kLooks; ++i) us.push_back(AskUs(ask, count, &random));
  const StoreMetrics metrics = store.Metrics();
  CAIRN_RETURN_IF_ERROR(store.Close());
  report->Value("objects", static_cast<double>(count), "in the directory");
  report->Value("open_ms", (opened - opening) / 1e3, "opening their store");
  report->Value("filled_ms", (filled - opened) / 1e3, "until the directory knows them all");
  report->Value("exists_1000_first_us", first_us, "of 1000 keys, half of them there, before that");
  report->Value("exists_1000_p50_us", Median(us), "the same behind that");
  report->Value("exists_1000_p99_us", Quantile(us, 0.99), "its slow end");
  report->Value("directory_mib", static_cast<double>(metrics.object_directory_bytes) / (1 << 20),
                "memory of the directory");
  return Status::Ok();
}

}  // namespace cairn::bench
