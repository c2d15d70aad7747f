// SPDX-License-Identifier: Apache-2.0
//
// Options by keyword: one row a field.
#include <algorithm>
#include <functional>
#include <limits>
#include <type_traits>

#include "api/python/src/names.h"
#include "api/python/src/size.h"
#include "api/python/src/store.h"
#include "base/core/text.h"

namespace cairn::python {

namespace {

using Set = std::function<void(nb::handle value, Options* options)>;

// A keyword of Store(): how a value becomes a field, and how help() and editors show it.
struct Row {
  const char* name;
  Set set;
  std::string shown;  // "max_bytes: int | str = ..."
};

[[noreturn]] void NoValue(const char* name, nb::handle value, const std::string& wanted) {
  BadArgument(std::string(name) + ": " + nb::repr(value).c_str() + " is no value for it" + wanted);
}

template <typename T>
T Value(nb::handle value, const char* name) {
  T result{};
  if (nb::try_cast(value, result, false)) return result;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (PyLong_Check(value.ptr()) && !PyBool_Check(value.ptr())) {
      NoValue(name, value, "; it is from 0 to " + std::to_string(std::numeric_limits<T>::max()));
    }
  }
  NoValue(name, value, "");
}

Row Flag(const char* name, bool Options::* field) {
  return {name,
          [=](nb::handle value, Options* options) { options->*field = Value<bool>(value, name); },
          std::string(name) + ": bool = " + (Options().*field ? "True" : "False")};
}
template <typename T>
Row Number(const char* name, T Options::* field) {
  return {name,
          [=](nb::handle value, Options* options) { options->*field = Value<T>(value, name); },
          std::string(name) + ": int = " + std::to_string(Options().*field)};
}
Row Size(const char* name, uint64_t Options::* field) {
  const uint64_t bytes = Options().*field;
  return {name,
          [=](nb::handle value, Options* options) {
            options->*field = nb::isinstance<nb::str>(value)
                                  ? SizeOf(nb::cast<std::string>(value), name)
                                  : Value<uint64_t>(value, name);
          },
          std::string(name) + ": int | str = " + std::to_string(bytes)};
}
template <typename E>
Row OfNames(const char* name, E Options::* field) {
  return {name,
          [=](nb::handle value, Options* options) {
            options->*field = Parse<E>(Value<std::string>(value, name), name);
          },
          std::string(name) + ": str = '" + Word(Options().*field) + "'"};
}

const std::vector<Row>& Rows() {
  using O = Options;
  static const std::vector<Row> rows = {
#define CAIRN_ROW(kind, name) kind(#name, &O::name)
      CAIRN_ROW(Flag, create_if_missing),
      CAIRN_ROW(Flag, error_if_exists),
      CAIRN_ROW(Flag, read_only),
      CAIRN_ROW(OfNames, recovery),
      CAIRN_ROW(Number, file_mode),
      CAIRN_ROW(Size, max_bytes),
      CAIRN_ROW(OfNames, evict),
      CAIRN_ROW(Size, segment_bytes),
      CAIRN_ROW(Size, log_bytes_max),
      CAIRN_ROW(Number, snapshot_interval_tokens),
      CAIRN_ROW(Number, max_delta_chain),
      CAIRN_ROW(Number, replay_records_max),
      CAIRN_ROW(Size, background_bytes_per_second),
      CAIRN_ROW(Number, spare_segments_min),
      CAIRN_ROW(Number, spare_segments_max),
      CAIRN_ROW(Size, max_memory_bytes),
      CAIRN_ROW(Size, hot_tail_bytes),
      CAIRN_ROW(Size, submit_copy_max_bytes),
      CAIRN_ROW(Size, tree_memory_bytes),
      CAIRN_ROW(Size, reuse_memory_bytes),
      CAIRN_ROW(OfNames, index),
      CAIRN_ROW(Number, max_lease_ns),
      CAIRN_ROW(Size, max_leased_bytes),
      CAIRN_ROW(Number, delta_batch_tokens),
      CAIRN_ROW(Number, delta_batch_wait_ns),
      CAIRN_ROW(OfNames, on_fatal),
      CAIRN_ROW(OfNames, backend),
      CAIRN_ROW(Number, executor_threads),
#undef CAIRN_ROW
      {"gpus",
       [](nb::handle value, O* options) { options->gpus = Value<std::vector<Gpu>>(value, "gpus"); },
       "gpus: collections.abc.Sequence[Gpu] = ()"},
      // Listening takes it.
      {"on_event", [](nb::handle /*value*/, O* /*options*/) {},
       "on_event: collections.abc.Callable[[str], object] | None = None"},
  };
  return rows;
}

}  // namespace

Options OptionsOf(const nb::kwargs& arguments) {
  Options options;
  for (const auto& [key, value] : arguments) {
    const std::string name = nb::str(key).c_str();
    const auto row = std::find_if(Rows().begin(), Rows().end(),
                                  [&](const Row& one) { return name == one.name; });
    if (row == Rows().end()) {
      nb::list names;
      for (const Row& one : Rows()) names.append(one.name);
      const nb::object nearest = nb::module_::import_("cairn._explain").attr("nearest");
      throw nb::type_error(
          ("Store() has no option " + Quoted(name) + nb::str(nearest(name, names)).c_str())
              .c_str());
    }
    row->set(value, &options);
  }
  return options;
}

const std::string& OpeningSignature() {
  static const std::string signature = [] {
    std::string text = "def __init__(self, path: str | bytes | os.PathLike, *";
    for (const Row& row : Rows()) text += ", " + row.shown;
    return text + ") -> None";
  }();
  return signature;
}

}  // namespace cairn::python
