// SPDX-License-Identifier: Apache-2.0
//
// Options by keyword: one row a field.
#include <functional>
#include <map>

#include "api/python/src/names.h"
#include "api/python/src/store.h"
#include "base/core/text.h"

namespace cairn::python {

namespace {

using Set = std::function<void(nb::handle value, Options* options)>;

template <typename T>
T Value(nb::handle value, const char* name) {
  T result{};
  if (!nb::try_cast(value, result, false)) {
    BadArgument(std::string(name) + ": " + nb::repr(value).c_str() + " is no value for it");
  }
  return result;
}
template <typename T>
Set Plain(const char* name, T Options::*field) {
  return [=](nb::handle value, Options* options) { options->*field = Value<T>(value, name); };
}
template <typename E>
Set OfNames(const char* name, E Options::*field) {
  return [=](nb::handle value, Options* options) {
    options->*field = Parse<E>(Value<std::string>(value, name), name);
  };
}

const std::map<std::string, Set, std::less<>>& Fields() {
  using O = Options;
  static const std::map<std::string, Set, std::less<>> fields = {
#define CAIRN_PLAIN(name) {#name, Plain(#name, &O::name)}
      CAIRN_PLAIN(create_if_missing),
      CAIRN_PLAIN(error_if_exists),
      CAIRN_PLAIN(read_only),
      CAIRN_PLAIN(salvage),
      CAIRN_PLAIN(file_mode),
      CAIRN_PLAIN(max_bytes),
      CAIRN_PLAIN(segment_bytes),
      CAIRN_PLAIN(log_bytes_max),
      CAIRN_PLAIN(snapshot_interval_tokens),
      CAIRN_PLAIN(max_delta_chain),
      CAIRN_PLAIN(replay_records_max),
      CAIRN_PLAIN(background_bytes_per_second),
      CAIRN_PLAIN(spare_segments_min),
      CAIRN_PLAIN(spare_segments_max),
      CAIRN_PLAIN(max_memory_bytes),
      CAIRN_PLAIN(hot_tail_bytes),
      CAIRN_PLAIN(submit_copy_max_bytes),
      CAIRN_PLAIN(tree_memory_bytes),
      CAIRN_PLAIN(reuse_memory_bytes),
      CAIRN_PLAIN(max_lease_ns),
      CAIRN_PLAIN(max_leased_bytes),
      CAIRN_PLAIN(delta_batch_tokens),
      CAIRN_PLAIN(delta_batch_wait_ns),
      CAIRN_PLAIN(direct_ingest_bytes),
      CAIRN_PLAIN(executor_threads),
#undef CAIRN_PLAIN
      {"evict", OfNames("evict", &O::evict)},
      {"index", OfNames("index", &O::index)},
      {"on_fatal", OfNames("on_fatal", &O::on_fatal)},
      {"backend", OfNames("backend", &O::backend)},
      {"gpus", Plain("gpus", &O::gpus)},
      {"on_event", [](nb::handle /*value*/, Options* /*options*/) {}},  // Listening's.
  };
  return fields;
}

}  // namespace

Options OptionsOf(const nb::kwargs& arguments) {
  Options options;
  for (const auto& [key, value] : arguments) {
    const std::string name = nb::str(key).c_str();
    const auto field = Fields().find(name);
    if (field == Fields().end()) {
      throw nb::type_error(("Store() has no option " + Quoted(name)).c_str());
    }
    field->second(value, &options);
  }
  return options;
}

}  // namespace cairn::python
