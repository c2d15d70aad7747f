// SPDX-License-Identifier: Apache-2.0
//
// Objects in C.
#include <algorithm>

#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/results.h"

using cairn::Result;
using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace cairn::capi {

namespace {

// More keys of one call than any engine has; a larger number was never set.
constexpr size_t kMaxObjects = size_t{1} << 24;

struct ObjectInfoAsC : cairn_object_info {
  explicit ObjectInfoAsC(const ObjectInfo& info)
      : cairn_object_info{}, as_c(Sized<cairn_object_class>::Default()) {
    as_c.name = info.object_class.name.c_str();
    as_c.page_bytes = info.object_class.page_bytes;
    as_c.dtype = static_cast<uint32_t>(info.object_class.dtype);
    struct_size = sizeof(cairn_object_info);
    key = Bytes(info.key);
    object_class = &as_c;
    pages = info.pages;
    bytes = info.bytes;
    depth = info.depth;
    pinned = info.pinned;
    ttl_ns = info.ttl_ns;
    put_at_ns = info.put_at_ns;
    used_at_ns = info.used_at_ns;
  }
  cairn_object_class as_c;
};
using InfoHolder = Holding<ObjectInfoAsC, ObjectInfo>;

struct PageHolder : ListOf<cairn_object_page, cairn_object_info, ObjectInfoAsC, ObjectInfo> {
  explicit PageHolder(ObjectPage page)
      : ListOf(std::move(page.objects)), next(std::move(page.cursor)) {
    cursor = Bytes(next);
  }
  std::string next;
};

using NamespaceList =
    ListOf<cairn_namespaces, cairn_namespace_info, NamespaceInfoAsC, NamespaceInfo>;

// The outcomes of a batch. Made before the call, for `count` of them.
struct Results : cairn_object_results {
  explicit Results(size_t n) : cairn_object_results{}, all(n), errors(n) {
    struct_size = sizeof(cairn_object_results);
    items = all.data();
    count = n;
  }
  void Set(size_t i, Status status, bool stored, uint64_t bytes) {
    all[i] = {static_cast<cairn_code>(status.code()), stored, bytes, nullptr};
    if (status.ok()) return;
    errors[i].status = std::move(status);
    all[i].error = &errors[i];
  }
  std::vector<cairn_object_result> all;
  std::vector<cairn_error> errors;
};

Result<std::vector<std::string_view>> ToKeys(const cairn_bytes* keys, size_t count) {
  CAIRN_RETURN_IF_ERROR(CheckCount(keys, count, kMaxObjects, "keys"));
  std::vector<std::string_view> converted;
  converted.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    CAIRN_ASSIGN_OR_RETURN(const std::string_view key, ToKey(keys[i]));
    converted.push_back(key);
  }
  return converted;
}

Result<std::vector<ObjectPut>> ToPuts(const cairn_object_put* puts, size_t count) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn_object_put> read,
                         ReadAll(puts, count, kMaxObjects, "puts"));
  std::vector<ObjectPut> converted;
  converted.reserve(count);
  for (const cairn_object_put& put : read) {
    CAIRN_RETURN_IF_ERROR(
        CheckCount(put.value.data, put.value.size, SIZE_MAX, "cairn_object_put::value"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view key, ToKey(put.key));
    converted.push_back(
        {.key = key, .value = Span(put.value), .depth = put.depth, .user_data = put.user_data});
  }
  return converted;
}

Result<std::vector<ObjectGet>> ToGets(const cairn_object_get* gets, size_t count) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn_object_get> read,
                         ReadAll(gets, count, kMaxObjects, "gets"));
  std::vector<ObjectGet> converted;
  converted.reserve(count);
  for (const cairn_object_get& get : read) {
    CAIRN_RETURN_IF_ERROR(CheckCount(get.into, get.into_size, SIZE_MAX, "cairn_object_get::into"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view key, ToKey(get.key));
    converted.push_back({.key = key,
                         .into = {static_cast<std::byte*>(get.into), get.into_size},
                         .user_data = get.user_data});
  }
  return converted;
}

// The options point into `given`.
Result<PutOptions> ToPutOptions(const cairn_put_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_put_options read, Read(given));
  PutOptions options;
  options.ns = Text(read.ns);
  options.object_class = ObjectClassId{read.object_class};
  CAIRN_RETURN_IF_ERROR(ToEnum(read.if_present, IfPresent::kReplace,
                               "cairn_put_options::if_present", &options.if_present));
  CAIRN_RETURN_IF_ERROR(ToDurability(read.durability, &options.durability));
  options.pinned = read.pinned;
  options.ttl_ns = read.ttl_ns;
  options.timeout_ns = read.timeout_ns;
  if (read.queue != nullptr) options.queue = &read.queue->value;
  return options;
}

Result<GetOptions> ToGetOptions(const cairn_get_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_get_options read, Read(given));
  GetOptions options;
  options.ns = Text(read.ns);
  options.object_class = ObjectClassId{read.object_class};
  options.timeout_ns = read.timeout_ns;
  if (read.queue != nullptr) options.queue = &read.queue->value;
  return options;
}

// No array is longer; one whose length was never set must not be written to.
void SetNull(cairn_ticket** tickets, size_t count) {
  if (tickets != nullptr && count <= kMaxObjects) std::fill_n(tickets, count, nullptr);
}

// The tickets of `start`, in `count` handles of the caller's, which are made first.
template <typename Start>
Status GiveTickets(cairn_ticket** out, size_t count, const Start& start) {
  std::vector<std::unique_ptr<cairn_ticket>> handles(out == nullptr ? 0 : count);
  for (auto& handle : handles) handle = std::make_unique<cairn_ticket>();
  CAIRN_ASSIGN_OR_RETURN(std::vector<Ticket> tickets, start());
  for (size_t i = 0; i < handles.size(); ++i) {
    handles[i]->value = std::move(tickets[i]);
    out[i] = handles[i].release();
  }
  return Status::Ok();
}

}  // namespace

}  // namespace cairn::capi

extern "C" {

cairn_code cairn_objects_new(const cairn_store* store, cairn_objects** objects,
                             cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(objects);
    CAIRN_C_NEED(store);
    *objects = new cairn_objects{cairn::Objects(store->value)};
    return Status::Ok();
  });
}
void cairn_objects_free(cairn_objects* objects) { delete objects; }

cairn_code cairn_objects_register_class(cairn_objects* objects,
                                        const cairn_object_class* object_class, uint64_t* id,
                                        cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(objects);
    CAIRN_C_NEED(object_class);
    CAIRN_C_NEED(id);
    CAIRN_ASSIGN_OR_RETURN(const cairn_object_class read, Read(object_class));
    cairn::ObjectClass converted;
    converted.name = String(read.name);
    converted.page_bytes = read.page_bytes;
    CAIRN_RETURN_IF_ERROR(ToDtype(read.dtype, "cairn_object_class::dtype", &converted.dtype));
    CAIRN_ASSIGN_OR_RETURN(const cairn::ObjectClassId given,
                           objects->value.RegisterClass(converted));
    *id = static_cast<uint64_t>(given);
    return Status::Ok();
  });
}

cairn_code cairn_objects_put_batch(cairn_objects* objects, const cairn_object_put* puts,
                                   size_t count, const cairn_put_options* options,
                                   cairn_object_results** results, cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (results != nullptr) *results = nullptr;
    CAIRN_C_NEED(objects);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn::ObjectPut> converted, ToPuts(puts, count));
    CAIRN_ASSIGN_OR_RETURN(const cairn::PutOptions with, ToPutOptions(options));
    auto holder = std::make_unique<Results>(count);
    CAIRN_ASSIGN_OR_RETURN(std::vector<cairn::PutResult> ended,
                           objects->value.PutBatch(converted, with));
    for (size_t i = 0; i < count; ++i) {
      holder->Set(i, std::move(ended[i].status), ended[i].stored, 0);
    }
    if (results != nullptr) *results = holder.release();
    return Status::Ok();
  });
}

cairn_code cairn_objects_get_batch(const cairn_objects* objects, const cairn_object_get* gets,
                                   size_t count, const cairn_get_options* options,
                                   cairn_object_results** results, cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (results != nullptr) *results = nullptr;
    CAIRN_C_NEED(objects);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn::ObjectGet> converted, ToGets(gets, count));
    CAIRN_ASSIGN_OR_RETURN(const cairn::GetOptions with, ToGetOptions(options));
    auto holder = std::make_unique<Results>(count);
    CAIRN_ASSIGN_OR_RETURN(std::vector<cairn::GetResult> ended,
                           objects->value.GetBatch(converted, with));
    for (size_t i = 0; i < count; ++i) {
      holder->Set(i, std::move(ended[i].status), false, ended[i].bytes);
    }
    if (results != nullptr) *results = holder.release();
    return Status::Ok();
  });
}
void cairn_object_results_free(cairn_object_results* results) {
  delete static_cast<Results*>(results);
}

cairn_code cairn_objects_put_batch_async(cairn_objects* objects, const cairn_object_put* puts,
                                         size_t count, const cairn_put_options* options,
                                         cairn_ticket** tickets, cairn_error** error) {
  return Call(error, [&]() -> Status {
    SetNull(tickets, count);
    CAIRN_C_NEED(objects);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn::ObjectPut> converted, ToPuts(puts, count));
    CAIRN_ASSIGN_OR_RETURN(const cairn::PutOptions with, ToPutOptions(options));
    return GiveTickets(tickets, count,
                       [&] { return objects->value.PutBatchAsync(converted, with); });
  });
}

cairn_code cairn_objects_get_batch_async(const cairn_objects* objects, const cairn_object_get* gets,
                                         size_t count, const cairn_get_options* options,
                                         cairn_ticket** tickets, cairn_error** error) {
  return Call(error, [&]() -> Status {
    SetNull(tickets, count);
    CAIRN_C_NEED(objects);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn::ObjectGet> converted, ToGets(gets, count));
    CAIRN_ASSIGN_OR_RETURN(const cairn::GetOptions with, ToGetOptions(options));
    return GiveTickets(tickets, count,
                       [&] { return objects->value.GetBatchAsync(converted, with); });
  });
}

cairn_code cairn_objects_exists(const cairn_objects* objects, const cairn_bytes* keys, size_t count,
                                const char* ns, uint64_t lease_ns, uint64_t* bits, uint64_t* found,
                                uint64_t* leading, uint64_t* lease, cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (lease != nullptr) *lease = 0;
    CAIRN_C_NEED(objects);
    if (lease_ns != 0) CAIRN_C_NEED(lease);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string_view> converted, ToKeys(keys, count));
    CAIRN_ASSIGN_OR_RETURN(const cairn::ObjectsFound there,
                           objects->value.Exists(converted, Text(ns), lease_ns));
    if (bits != nullptr) std::copy(there.bits.begin(), there.bits.end(), bits);
    if (found != nullptr) *found = there.count;
    if (leading != nullptr) *leading = there.leading;
    if (lease != nullptr) *lease = static_cast<uint64_t>(there.lease);
    return Status::Ok();
  });
}

cairn_code cairn_objects_touch(cairn_objects* objects, const cairn_bytes* keys, size_t count,
                               const char* ns, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(objects);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string_view> converted, ToKeys(keys, count));
    return objects->value.Touch(converted, Text(ns));
  });
}

cairn_code cairn_objects_delete(cairn_objects* objects, const cairn_bytes* keys, size_t count,
                                const char* ns, cairn_durability durability,
                                cairn_object_results** results, cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (results != nullptr) *results = nullptr;
    CAIRN_C_NEED(objects);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string_view> converted, ToKeys(keys, count));
    cairn::Durability level{};
    CAIRN_RETURN_IF_ERROR(ToDurability(durability, &level));
    auto holder = std::make_unique<Results>(count);
    CAIRN_ASSIGN_OR_RETURN(std::vector<Status> ended,
                           objects->value.Delete(converted, Text(ns), level));
    for (size_t i = 0; i < count; ++i) holder->Set(i, std::move(ended[i]), false, 0);
    if (results != nullptr) *results = holder.release();
    return Status::Ok();
  });
}

cairn_code cairn_objects_stat(const cairn_objects* objects, const cairn_bytes* key, const char* ns,
                              cairn_object_info** info, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(info);
    CAIRN_C_NEED(objects);
    CAIRN_C_NEED(key);
    CAIRN_ASSIGN_OR_RETURN(const std::string_view converted, ToKey(*key));
    CAIRN_ASSIGN_OR_RETURN(cairn::ObjectInfo found, objects->value.Stat(converted, Text(ns)));
    *info = std::make_unique<InfoHolder>(std::move(found)).release();
    return Status::Ok();
  });
}
void cairn_object_info_free(cairn_object_info* info) { delete static_cast<InfoHolder*>(info); }

cairn_code cairn_objects_list(const cairn_objects* objects, const char* ns, size_t limit,
                              const cairn_bytes* cursor, cairn_object_page** page,
                              cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(page);
    CAIRN_C_NEED(objects);
    CAIRN_ASSIGN_OR_RETURN(const std::string from, ToCursor(cursor));
    CAIRN_ASSIGN_OR_RETURN(cairn::ObjectPage found, objects->value.List(Text(ns), limit, from));
    *page = std::make_unique<PageHolder>(std::move(found)).release();
    return Status::Ok();
  });
}
void cairn_object_page_free(cairn_object_page* page) { delete static_cast<PageHolder*>(page); }

cairn_code cairn_objects_usage(const cairn_objects* objects, cairn_namespaces** namespaces,
                               cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(namespaces);
    CAIRN_C_NEED(objects);
    CAIRN_ASSIGN_OR_RETURN(std::vector<cairn::NamespaceInfo> found, objects->value.Usage());
    *namespaces = std::make_unique<NamespaceList>(std::move(found)).release();
    return Status::Ok();
  });
}
cairn_code cairn_objects_set_policy(cairn_objects* objects, const char* ns,
                                    const cairn_namespace_policy* policy,
                                    cairn_durability durability, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(objects);
    CAIRN_ASSIGN_OR_RETURN(const cairn::NamespacePolicy converted, ToPolicy(policy));
    cairn::Durability level{};
    CAIRN_RETURN_IF_ERROR(ToDurability(durability, &level));
    return objects->value.SetPolicy(Text(ns), converted, level);
  });
}

}  // extern "C"
