// SPDX-License-Identifier: Apache-2.0
//
// Objects: putting and getting. The rest is in object_looks.cc.
#include "api/python/src/objects.h"

#include "api/python/src/names.h"

namespace cairn::python {

std::string KeyOf(nb::handle key) {
  if (nb::isinstance<nb::bytes>(key)) {
    const auto bytes = nb::borrow<nb::bytes>(key);
    return {bytes.c_str(), bytes.size()};
  }
  std::string text;
  if (!nb::try_cast(key, text, false)) {
    BadArgument("key: a " + std::string(nb::inst_name(key).c_str()) + " is neither bytes nor text");
  }
  return text;
}

Keys::Keys(nb::handle keys) {
  // Its characters would be keys.
  if (nb::isinstance<nb::str>(keys) || nb::isinstance<nb::bytes>(keys)) {
    BadArgument("keys: a single key; give a list of keys");
  }
  for (const nb::handle key : keys) keys_.push_back(KeyOf(key));
  views_.assign(keys_.begin(), keys_.end());
}

namespace {

// An error of one of many is returned in its place.
nb::object ErrorOr(const Status& status, nb::object value) {
  return status.ok() ? std::move(value) : MakeError(status);
}

// Keys and values of a batch; `puts` or `gets` point into them.
struct Batch {
  std::vector<std::string> keys;
  std::vector<Tensor> values;
  std::string ns;
  std::vector<ObjectPut> puts;
  std::vector<ObjectGet> gets;
};

std::unique_ptr<Batch> BatchOf(nb::handle items, const std::string& ns, bool to_write) {
  auto batch = std::make_unique<Batch>();
  batch->ns = ns;
  size_t i = 0;
  for (const nb::handle item : items) {
    const std::string what = "items[" + std::to_string(i++) + "]";
    if (!nb::isinstance<nb::tuple>(item) || nb::len(item) != 2) {
      BadArgument(what + ": must be a tuple of a key and " + (to_write ? "room" : "a value"));
    }
    batch->keys.push_back(KeyOf(item[0]));
    batch->values.push_back(ImportBytes(item[1], what, to_write));
  }
  return batch;
}

PutOptions PutOptionsOf(const Batch& batch, uint64_t object_class, bool replace, bool pinned,
                        double ttl, std::string_view durability, std::optional<double> timeout) {
  return {.ns = batch.ns,
          .object_class = ObjectClassId{object_class},
          .if_present = replace ? IfPresent::kReplace : IfPresent::kKeep,
          .pinned = pinned,
          .ttl_ns = DurationNs(ttl, "ttl"),
          .durability = Parse<Durability>(durability, "durability"),
          .timeout_ns = TimeoutNs(timeout)};
}

void FillPuts(Batch* batch, const std::vector<uint32_t>& depths) {
  if (!depths.empty() && depths.size() != batch->keys.size()) {
    BadArgument("depths: must be as many as items");
  }
  for (size_t i = 0; i < batch->keys.size(); ++i) {
    batch->puts.push_back({.key = batch->keys[i],
                           .value = {batch->values[i].data, batch->values[i].bytes()},
                           .depth = depths.empty() ? 0 : depths[i]});
  }
}
void FillGets(Batch* batch) {
  for (size_t i = 0; i < batch->keys.size(); ++i) {
    batch->gets.push_back(
        {.key = batch->keys[i], .into = {batch->values[i].data, batch->values[i].bytes()}});
  }
}

nb::list Put(PyObjects& self, nb::handle items, uint64_t object_class, const std::string& ns,
             bool replace, const std::vector<uint32_t>& depths, bool pinned, double ttl,
             std::string_view durability, std::optional<double> timeout, bool raises) {
  const std::unique_ptr<Batch> batch = BatchOf(items, ns, false);
  FillPuts(batch.get(), depths);
  const PutOptions options =
      PutOptionsOf(*batch, object_class, replace, pinned, ttl, durability, timeout);
  nb::list outcomes;
  for (const PutResult& result :
       Take(Unlocked([&] { return self.objects.PutBatch(batch->puts, options); }))) {
    if (raises) Check(result.status);
    outcomes.append(ErrorOr(result.status, nb::bool_(result.stored)));
  }
  return outcomes;
}

nb::list Get(PyObjects& self, nb::handle items, const std::string& ns, uint64_t object_class,
             std::optional<double> timeout) {
  const std::unique_ptr<Batch> batch = BatchOf(items, ns, true);
  FillGets(batch.get());
  const GetOptions options{.ns = batch->ns,
                           .object_class = ObjectClassId{object_class},
                           .timeout_ns = TimeoutNs(timeout)};
  nb::list outcomes;
  for (const GetResult& result :
       Take(Unlocked([&] { return self.objects.GetBatch(batch->gets, options); }))) {
    outcomes.append(ErrorOr(result.status, nb::int_(result.bytes)));
  }
  return outcomes;
}

// One Ticket for each item; all of them keep the batch alive.
nb::list Tickets(const PyObjects& self, std::vector<Ticket>&& tickets, std::vector<Told>&& told,
                 Call::Kind kind, std::unique_ptr<Batch> batch) {
  const nb::object kept = Owned(std::move(batch));
  nb::list made;
  for (size_t i = 0; i < tickets.size(); ++i) {
    made.append(MakeTicket(Call(self.store, std::move(tickets[i]), kind, {kept}), told[i]));
  }
  return made;
}

nb::list PutAsync(PyObjects& self, nb::handle items, uint64_t object_class, const std::string& ns,
                  bool replace, const std::vector<uint32_t>& depths, bool pinned, double ttl,
                  std::string_view durability, std::optional<double> timeout) {
  std::unique_ptr<Batch> batch = BatchOf(items, ns, false);
  FillPuts(batch.get(), depths);
  PutOptions options =
      PutOptionsOf(*batch, object_class, replace, pinned, ttl, durability, timeout);
  std::vector<Told> told;
  for (ObjectPut& put : batch->puts) {
    put.user_data = told.emplace_back(self.store).number();
    options.queue = told.back().queue();
  }
  std::vector<Ticket> tickets =
      Take(Unlocked([&] { return self.objects.PutBatchAsync(batch->puts, options); }));
  return Tickets(self, std::move(tickets), std::move(told), Call::Kind::kAppend, std::move(batch));
}

nb::list GetAsync(PyObjects& self, nb::handle items, const std::string& ns, uint64_t object_class,
                  std::optional<double> timeout) {
  std::unique_ptr<Batch> batch = BatchOf(items, ns, true);
  FillGets(batch.get());
  GetOptions options{.ns = batch->ns,
                     .object_class = ObjectClassId{object_class},
                     .timeout_ns = TimeoutNs(timeout)};
  std::vector<Told> told;
  for (ObjectGet& get : batch->gets) {
    get.user_data = told.emplace_back(self.store).number();
    options.queue = told.back().queue();
  }
  std::vector<Ticket> tickets =
      Take(Unlocked([&] { return self.objects.GetBatchAsync(batch->gets, options); }));
  return Tickets(self, std::move(tickets), std::move(told), Call::Kind::kObject, std::move(batch));
}

constexpr const char* kItems = "collections.abc.Iterable[tuple[bytes | str, typing.Any]]";

void BindTransfers(nb::class_<PyObjects>& objects) {
  static const std::string put_arguments =
      std::string("(self, items: ") + kItems +
      ", *, object_class: int, namespace: str = '', replace: bool = False, "
      "depths: collections.abc.Sequence[int] = (), pinned: bool = False, ttl: float = 0.0, "
      "durability: str = 'process', timeout: float | None = None";
  static const std::string get_arguments =
      std::string("(self, items: ") + kItems +
      ", *, namespace: str = '', object_class: int = 0, timeout: float | None = None) -> ";
  static const std::string signatures[] = {
      "def put" + put_arguments + ", raises: bool = True) -> list[bool | cairn._errors.Error]",
      "def put_async" + put_arguments + ") -> list[Ticket]",
      "def get" + get_arguments + "list[int | cairn._errors.Error]",
      "def get_async" + get_arguments + "list[Ticket]",
  };
  objects.def("put", &Put, "items"_a, nb::kw_only(), "object_class"_a, "namespace"_a = "",
              "replace"_a = false, "depths"_a = std::vector<uint32_t>(), "pinned"_a = false,
              "ttl"_a = 0.0, "durability"_a = "process", "timeout"_a = nb::none(),
              "raises"_a = true, nb::sig(signatures[0].c_str()),
              R"(Stores (key, value) pairs; of each True (stored) or False (was there, kept).

raises: the first Error of a pair is raised, when all were tried; off: it stands in the list.

Values: anything contiguous in host memory, up to 1 GiB. replace: what is there goes in the same
step. depths: how far each stands behind the beginning of its chain: deeper ones are evicted first.
ttl: seconds, 0: as the namespace says. Blocks until all are as durable as asked for.)");
  objects.def(
      "put_async", &PutAsync, "items"_a, nb::kw_only(), "object_class"_a, "namespace"_a = "",
      "replace"_a = false, "depths"_a = std::vector<uint32_t>(), "pinned"_a = false, "ttl"_a = 0.0,
      "durability"_a = "process", "timeout"_a = nb::none(), nb::sig(signatures[1].c_str()),
      "The same by a thread of the store: a Ticket a pair, whose result is its bytes. Values\n"
      "are kept alive and must not change until it is released.");
  objects.def("get", &Get, "items"_a, nb::kw_only(), "namespace"_a = "", "object_class"_a = 0,
              "timeout"_a = nb::none(), nb::sig(signatures[2].c_str()),
              R"(Reads into (key, room) pairs; of each the object's bytes or its Error.

Room: anything contiguous and writable in host memory; behind the object's last byte it may be
written to as well. NotFound, InvalidArgument (there is too little room), ModelMismatch
(object_class is given, and it is of another one), Corruption. Blocks.)");
  objects.def(
      "get_async", &GetAsync, "items"_a, nb::kw_only(), "namespace"_a = "", "object_class"_a = 0,
      "timeout"_a = nb::none(), nb::sig(signatures[3].c_str()),
      "The same by a thread of the store: a Ticket a pair, whose result is the object's bytes.");
}

}  // namespace

void BindObjects(nb::module_& module) {
  BindObjectValues(module);
  nb::class_<PyObjects> objects(module, "Objects",
                                R"(Bytes under keys of the caller's own, in the same store.

Keys are 1 to 256 bytes. An object never changes: it is there whole or not at all. Namespaces of
objects are not those of branches. Thread-safe, and without the interpreter's lock.)");
  objects.def(
      "__init__",
      [](PyObjects* self, nb::handle store) {
        if (!nb::isinstance<OpenStore>(store)) BadArgument("store: is no Store");
        new (self) PyObjects{.objects = Objects(nb::cast<OpenStore&>(store).store()),
                             .store = nb::borrow(store)};
      },
      "store"_a, nb::sig("def __init__(self, store: Store) -> None"));
  BindTransfers(objects);
  BindObjectLooks(objects);
}

}  // namespace cairn::python
