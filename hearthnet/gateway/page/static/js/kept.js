// What this browser keeps: its key, its conversations, their answers. IndexedDB; nothing leaves it.

const STORES = ["keys", "conversations", "answers"];
let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const asked = indexedDB.open("hearthnet", 1);
    asked.onupgradeneeded = () => STORES.forEach((name) => asked.result.createObjectStore(name, { keyPath: "id" }));
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  return opened;
}

async function transaction(store, mode, act) {
  const db = await database();
  return new Promise((resolve, reject) => {
    const done = db.transaction(store, mode);
    const asked = act(done.objectStore(store));
    done.oncomplete = () => resolve(asked.result);
    done.onerror = done.onabort = () => reject(done.error);
  });
}

export const find = (store, id) => transaction(store, "readonly", (kept) => kept.get(id));
export const all = (store) => transaction(store, "readonly", (kept) => kept.getAll());
export const keep = (store, value) => transaction(store, "readwrite", (kept) => kept.put(value));
export const drop = (store, id) => transaction(store, "readwrite", (kept) => kept.delete(id));

/** Everything, the key too. */
export async function forgetAll() {
  for (const store of STORES) await transaction(store, "readwrite", (kept) => kept.clear());
}

/** A small setting that may also be lost. */
export const setting = {
  get: (name, otherwise = "") => localStorage.getItem(`hearthnet.${name}`) ?? otherwise,
  set: (name, value) => localStorage.setItem(`hearthnet.${name}`, value),
};
