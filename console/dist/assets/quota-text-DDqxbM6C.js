import{am as n,C as e}from"./base-9FdGNpRO.js";const r=(t,s)=>t.endsWith("_bytes")?n(s):t.endsWith("_per_second")?`${e(s)}/s`:e(s);export{r as s};
