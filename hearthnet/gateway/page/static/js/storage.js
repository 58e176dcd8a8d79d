// What this browser keeps: its key, its conversations, their answers. IndexedDB; nothing leaves it.

const STORES = ["keys", "conversations", "answers"];
let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const opening = indexedDB.open("hearthnet", 1);
    opening.onupgradeneeded = () => STORES.forEach((name) => opening.result.createObjectStore(name, { keyPath: "id" }));
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
  return opened;
}

async function transaction(store, mode, act) {
  const db = await database();
  return new Promise((resolve, reject) => {
    const done = db.transaction(store, mode);
    const request = act(done.objectStore(store));
    done.oncomplete = () => resolve(request.result);
    done.onerror = done.onabort = () => reject(done.error);
  });
}

export const find = (store, id) => transaction(store, "readonly", (values) => values.get(id));
export const all = (store) => transaction(store, "readonly", (values) => values.getAll());
export const keep = (store, value) => transaction(store, "readwrite", (values) => values.put(value));
export const drop = (store, id) => transaction(store, "readwrite", (values) => values.delete(id));

/** Everything, the key too. */
export async function forgetAll() {
  for (const store of STORES) await transaction(store, "readwrite", (values) => values.clear());
}

/** A small setting that may also be lost. */
export const setting = {
  get: (name, otherwise = "") => localStorage.getItem(`hearthnet.${name}`) ?? otherwise,
  set: (name, value) => localStorage.setItem(`hearthnet.${name}`, value),
};
